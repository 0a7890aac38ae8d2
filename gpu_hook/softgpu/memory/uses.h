/* Who touches device memory right now. Memory that becomes shared moves to other pages: while it does, no copy, fill or
 * built-in kernel of this process may be in it. */
#ifndef SOFTGPU_USES_H
#define SOFTGPU_USES_H

/* Around every access to the alias window. Short: what waits for time to pass does so outside. */
void uses_begin(void);
void uses_end(void);
/* Between these two nobody touches device memory. Not called with a use begun. */
void uses_stop(void);
void uses_resume(void);

#endif
