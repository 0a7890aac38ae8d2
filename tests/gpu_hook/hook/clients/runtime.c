/* A program of the CUDA runtime, shared or static. The runtime finds the driver by itself and asks it for some 440
 * functions; what it gets to on the software GPU is cuInit, which the hook answers by registering with the agent. */
#include <stdio.h>

int cudaGetDeviceCount(int *count);

int main(void)
{
    int count = 0;
    printf("%d\n", cudaGetDeviceCount(&count));
    return 0;
}
