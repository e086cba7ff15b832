#include "src/streamtrain.h"

const char *ooc_version(void)
{
    return OOC_VERSION;
}
