/* Runs a fuzz target over saved inputs: every file of the folders that are named. No input at all
 * is a failure. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(1 << 20); /* corpus files are small */
    size_t bytes;

    if (!f || !data) {
        perror(path);
        exit(1);
    }
    bytes = fread(data, 1, 1 << 20, f);
    fclose(f);
    data = realloc(data, bytes ? bytes : 1); /* exact size, so that the sanitizer sees overruns */
    printf("%s: %zu bytes\n", path, bytes);
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, bytes);
    free(data);
    return 1;
}

static int replay_folder(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    char path[4096];

    if (!d) {
        perror(folder);
        exit(1);
    }
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        n += replay_file(path);
    }
    closedir(d);
    return n;
}

int main(int argc, char **argv)
{
    int n = 0;

    for (int i = 1; i < argc; i++)
        n += replay_folder(argv[i]);
    printf("%d inputs\n", n);
    return n == 0;
}
