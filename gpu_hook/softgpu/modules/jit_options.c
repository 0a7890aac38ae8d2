/* Answers without content. */
#include "modules/jit_options.h"

#include <stddef.h>
#include <stdint.h>

/* Empties the buffer of a log. Its size is an output, too: the bytes that were filled. */
static void empty_log(unsigned count, const CUjit_option *options, void **values, CUjit_option buffer_option,
                      CUjit_option size_option)
{
    char *buffer = NULL;
    uintptr_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == buffer_option)
            buffer = values[i];
        if (options[i] == size_option) {
            bytes = (uintptr_t)values[i];
            values[i] = NULL;
        }
    }
    if (buffer && bytes)
        *buffer = '\0';
}

void jit_options_say_nothing(unsigned count, const CUjit_option *options, void **values)
{
    if (options == NULL || values == NULL)
        return;
    empty_log(count, options, values, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
    empty_log(count, options, values, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
    for (unsigned i = 0; i < count; i++)
        if (options[i] == CU_JIT_WALL_TIME)
            values[i] = NULL; /* a float of 0 */
}
