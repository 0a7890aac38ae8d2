/* The part of the null driver that its NVML reads. */
#ifndef ALIQUOT_BENCH_NULL_DRIVER_H
#define ALIQUOT_BENCH_NULL_DRIVER_H

extern unsigned char null_uuid[16];
extern int null_contexts; /* primary contexts held by this process; the benchmark takes them in one thread */

#endif
