/* A program that tests the hook's assumptions about a GPU's driver. No hook and no CUDA runtime:
 * it opens the driver's library by its path. Every answer is one line of JSON; an answer that
 * differs is a finding, never an exit code. */
#ifndef ALIQUOT_GPU_PROBE_H
#define ALIQUOT_GPU_PROBE_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#define MIB ((size_t)1 << 20)
#define STRING_OF(text) #text
#define STRING(text) STRING_OF(text)

/* A function of the driver, under the name that cuda.h gives it (cuMemAlloc is cuMemAlloc_v2). */
#define CU(function) (*(__typeof__(&function))probe_function(STRING(function)))

/* Ends the sub-command with a line that names the call, if the rest would have no meaning. */
#define MUST(call) probe_must((call), #call, __FILE__, __LINE__)

extern void *probe_driver; /* of dlopen; written by main alone */

void *probe_function(const char *name); /* ends the program where the driver lacks it */
void probe_must(CUresult code, const char *call, const char *file, int line);
CUcontext probe_start(void); /* device 0, its primary context current */
CUfunction probe_kernel(const char *name); /* of builtins.ptx, which ALIQUOT_BUILTINS names */
void probe_launch(CUfunction kernel, CUstream stream, void **arguments);
double probe_microseconds(void);
double probe_median(double *values, size_t count); /* sorts them */
size_t probe_free_bytes(void);
CUmemAllocationProp probe_pinned(void); /* properties of memory on device 0 */
void probe_map(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle); /* readable and writable */

/* One line: {"probe": NAME, FIELDS}. FIELDS is a format of JSON members. */
void probe_say(const char *name, const char *fields, ...) __attribute__((format(printf, 2, 3)));

/* The sub-commands. */
void probe_resolver(const char *names_file);
void probe_vmm(const char *unused);
void probe_free_zero(const char *unused);
void probe_contexts(const char *unused); /* starts CUDA in a child: to be called in a process that has not */
void probe_full(const char *unused);
void probe_graph(const char *unused);
void probe_nvml(const char *library);
void probe_pointers(const char *unused);
void probe_events(const char *unused);
void probe_steps(const char *asked);

#endif
