/* Accesses to device memory in progress. Memory that becomes shared moves to other pages: meanwhile
 * no copy, fill or built-in kernel of this process may touch it. */
#ifndef SOFTGPU_ACCESSES_H
#define SOFTGPU_ACCESSES_H

/* Called around every access to the alias window. Short: what waits for simulated time does so
 * outside. */
void accesses_begin(void);
void accesses_end(void);
/* Between these two calls no thread touches device memory. Not called by a thread within an
 * access. */
void accesses_stop(void);
void accesses_resume(void);

#endif
