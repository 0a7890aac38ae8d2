#include "nvml/nvml_view.h"

#include <ctype.h>

/* Reads "GPU-2b7e1516-28ae-…". False for anything else, such as a MIG device. */
static bool parse_uuid(const char *text, uint8_t uuid[16])
{
    if (text[0] != 'G' || text[1] != 'P' || text[2] != 'U' || text[3] != '-')
        return false;
    int digits = 0;
    for (const char *cursor = text + 4; *cursor; cursor++) {
        if (*cursor == '-')
            continue;
        if (!isxdigit((unsigned char)*cursor) || digits == 32)
            return false;
        int value = isdigit((unsigned char)*cursor) ? *cursor - '0'
                                                    : tolower((unsigned char)*cursor) - 'a' + 10;
        uuid[digits / 2] = (uint8_t)(digits % 2 ? uuid[digits / 2] << 4 | value : value);
        digits++;
    }
    return digits == 32;
}

bool nvml_view(nvmlDevice_t device, struct observer_view *view)
{
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    uint8_t uuid[16];
    return nvml_driver()->nvmlDeviceGetUUID(device, text, sizeof text) == NVML_SUCCESS &&
           parse_uuid(text, uuid) && observer_view(uuid, view);
}
