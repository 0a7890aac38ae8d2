/* An OpenMP program, offloaded by GCC's own compiler and libgomp's nvptx plugin. Says what it found, line by line; while
 * it holds memory it waits for a line. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)1 << 20)
#define HELD_BYTES ((size_t)96 << 20)

static int round_trip(int host)
{
    unsigned char *here = malloc(BYTES), *back = calloc(1, BYTES);
    for (size_t i = 0; i < BYTES; i++)
        here[i] = (unsigned char)(i * 7 + (i >> 8));
    void *there = omp_target_alloc(BYTES, 0);
    int is_equal = there && omp_target_memcpy(there, here, BYTES, 0, 0, 0, host) == 0 &&
                   omp_target_memcpy(back, there, BYTES, 0, 0, host, 0) == 0 && memcmp(here, back, BYTES) == 0;
    omp_target_free(there, 0);
    free(here);
    free(back);
    return is_equal;
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("devices %d\n", omp_get_num_devices());
    printf("round trip %d\n", round_trip(omp_get_initial_device()));
    void *held = omp_target_alloc(HELD_BYTES, 0);
    int number = 1;
#pragma omp target map(tofrom : number)
    number += 1;
    printf("number %d\n", number);
    getchar();
    printf("more than there is %d\n", omp_target_alloc((size_t)8 << 30, 0) != NULL);
    omp_target_free(held, 0);
    printf("again %d\n", (held = omp_target_alloc(2 * HELD_BYTES, 0)) != NULL);
    omp_target_free(held, 0);
    return 0;
}
