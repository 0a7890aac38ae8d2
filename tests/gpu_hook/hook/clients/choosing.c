/* A driver in whose cuInit the list of visible devices changes, as by another thread of the program. */
#include <stdlib.h>

int cuInit(unsigned flags)
{
    const char *chosen = getenv("CHOSEN_MEANWHILE");
    return chosen ? setenv("CUDA_VISIBLE_DEVICES", chosen, 1) : unsetenv("CUDA_VISIBLE_DEVICES");
}
