/* Binds functions that glibc 2.34 moved into libc.so.6 under a new version to their first version,
 * which every glibc since has: the shim must load on glibc 2.28. Included in front of every C file
 * by the build. */
#if defined(__x86_64__)
#define GLIBC_FIRST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define GLIBC_FIRST "GLIBC_2.17"
#else
#error "the hook is built for x86-64 and aarch64"
#endif
#define BIND_FIRST(name) __asm__(".symver " #name ", " #name "@" GLIBC_FIRST)

BIND_FIRST(dladdr);
#if defined(__x86_64__)
__asm__(".symver dladdr1, dladdr1@GLIBC_2.3.3");
#else
BIND_FIRST(dladdr1);
#endif
BIND_FIRST(dlclose);
BIND_FIRST(dlerror);
BIND_FIRST(dlopen);
BIND_FIRST(dlsym);
BIND_FIRST(dlvsym);
BIND_FIRST(pthread_attr_setstack);
BIND_FIRST(pthread_attr_setstacksize);
BIND_FIRST(pthread_create);
BIND_FIRST(pthread_join);
BIND_FIRST(pthread_key_create);
BIND_FIRST(pthread_mutex_timedlock);
BIND_FIRST(pthread_mutex_trylock);
BIND_FIRST(pthread_once);
BIND_FIRST(pthread_setspecific);
BIND_FIRST(pthread_sigmask);
