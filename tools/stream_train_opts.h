/* stream_train_opts.h - the options of stream-train. */
#ifndef OOC_TOOLS_STREAM_TRAIN_OPTS_H
#define OOC_TOOLS_STREAM_TRAIN_OPTS_H

#include "src/train/trainer.h"
#include "tools/cli.h"

/* Fills *cli and *opts. False: return *exit_code from main. */
bool stream_train_parse(ooc_cli *cli, ooc_train_opts *opts, int argc, char **argv, int *exit_code);
#endif
