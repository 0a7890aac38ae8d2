/* Copy memory that is not read again soon, past the caches: the lines of the target are not fetched
 * first. */
#ifndef ALIQUOT_STREAM_COPY_H
#define ALIQUOT_STREAM_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>

static inline void stream_copy(void *to, const void *from, size_t bytes)
{
    size_t head = -(uintptr_t)to % 64;
    if (bytes < 4096 || head > bytes) {
        memcpy(to, from, bytes);
        return;
    }
    memcpy(to, from, head);
    char *target = (char *)to + head;
    const char *source = (const char *)from + head;
    size_t lines = (bytes - head) / 64;
    for (size_t i = 0; i < lines; i++, target += 64, source += 64)
        for (int part = 0; part < 64; part += 16)
            _mm_stream_si128((__m128i *)(target + part),
                             _mm_loadu_si128((const __m128i *)(source + part)));
    _mm_sfence();
    memcpy(target, source, (bytes - head) % 64);
}
#else
static inline void stream_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
#endif

#endif
