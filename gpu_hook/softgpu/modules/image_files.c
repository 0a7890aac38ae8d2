/* Images in files. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "modules/images.h"

#define FILE_BYTES_MAX (1ll << 30)

CUresult image_read_file(const char *path, char **data, size_t *bytes)
{
    struct stat status;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &status) != 0 || status.st_size > FILE_BYTES_MAX) {
        if (descriptor >= 0)
            close(descriptor);
        return CUDA_ERROR_FILE_NOT_FOUND;
    }
    /* ends in zeros, as PTX text must */
    *data = calloc(1, (size_t)status.st_size + sizeof(uint64_t));
    ssize_t length = *data ? read(descriptor, *data, (size_t)status.st_size) : -1;
    close(descriptor);
    if (length < 0)
        free(*data);
    *bytes = (size_t)length;
    return length < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
