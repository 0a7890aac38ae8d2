/* The linker: joins the names and parameters of its inputs into one PTX text of declarations.
 * Nothing is compiled, so unresolved symbols are not found here, and of two definitions of a name
 * the first holds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/contexts.h"
#include "driver/handles.h"
#include "modules/images.h"
#include "implemented.h"
#include "modules/jit_options.h"

/* A CUlinkState is a pointer to this. Used by one thread at a time, as the driver's is. */
struct link {
    struct image joined;
    char *text; /* once complete */
    size_t bytes;
};

CUresult impl_cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues,
                              CUlinkState *stateOut)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || stateOut == NULL || (numOptions && (options == NULL || optionValues == NULL)))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    struct link *link = calloc(1, sizeof *link);
    if (link == NULL || handles_add(HANDLE_LINK, link) != 0) {
        free(link);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    jit_options_say_nothing(numOptions, options, optionValues);
    *stateOut = (CUlinkState)link;
    return CUDA_SUCCESS;
}

static int has_entry(const struct image *image, const char *name)
{
    for (size_t i = 0; i < image->entry_count; i++)
        if (strcmp(image->entries[i].name, name) == 0)
            return 1;
    return 0;
}

static int has_global(const struct image *image, const char *name)
{
    for (size_t i = 0; i < image->global_count; i++)
        if (strcmp(image->globals[i].name, name) == 0)
            return 1;
    return 0;
}

static int join_entry(struct image *joined, const struct entry *from)
{
    struct entry *entry = image_add_entry(joined, from->name, strlen(from->name));
    for (uint32_t i = 0; entry && i < from->parameter_count; i++)
        if (image_add_parameter(entry, from->parameters[i].offset, from->parameters[i].bytes) != 0)
            return -1;
    return entry ? 0 : -1;
}

static CUresult join(struct image *joined, const struct image *input)
{
    for (size_t i = 0; i < input->entry_count; i++)
        if (!has_entry(joined, input->entries[i].name) && join_entry(joined, &input->entries[i]) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < input->global_count; i++) {
        const struct global *global = &input->globals[i];
        if (!has_global(joined, global->name) &&
            image_add_global(joined, global->name, strlen(global->name), global->bytes) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult impl_cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                               unsigned int numOptions, CUjit_option *options, void **optionValues)
{
    struct image image;
    struct link *link = (struct link *)state;
    if (!handles_has(HANDLE_LINK, link))
        return CUDA_ERROR_INVALID_HANDLE;
    size_t ended; /* PTX need not end in a zero here */
    if (data == NULL || size == 0 || __builtin_add_overflow(size, sizeof(uint64_t), &ended) || link->text ||
        (unsigned)type >= CU_JIT_NUM_INPUT_TYPES)
        return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_JIT_INPUT_LIBRARY || type == CU_JIT_INPUT_OBJECT)
        return CUDA_SUCCESS; /* device functions: no entries of interest */
    char *copy = calloc(1, ended);
    if (copy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy, data, size);
    CUresult result = image_open(copy, size, &image);
    if (result == CUDA_SUCCESS) {
        result = image.is_opaque ? CUDA_ERROR_NOT_SUPPORTED : join(&link->joined, &image);
        image_close(&image);
    }
    free(copy);
    return result;
}

CUresult impl_cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
                               CUjit_option *options, void **optionValues)
{
    if (!handles_has(HANDLE_LINK, state))
        return CUDA_ERROR_INVALID_HANDLE;
    if (path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    size_t bytes;
    char *data;
    CUresult result = image_read_file(path, &data, &bytes);
    if (result)
        return result;
    result = impl_cuLinkAddData_v2(state, type, data, bytes, path, numOptions, options, optionValues);
    free(data);
    return result;
}

/* Parameters as bytes at an alignment that keeps the offsets. */
static void declare(FILE *output, const struct entry *entry)
{
    fprintf(output, ".visible .entry %s(", entry->name);
    for (uint32_t i = 0; i < entry->parameter_count; i++) {
        uint32_t offset = entry->parameters[i].offset, alignment = offset ? offset & -offset : 16;
        fprintf(output, "%s.param .align %u .b8 p%u[%u]", i ? ", " : "", alignment < 16 ? alignment : 16, i,
                entry->parameters[i].bytes);
    }
    fputs(")\n{\nret;\n}\n", output);
}

static CUresult write_text(struct link *link)
{
    FILE *output = open_memstream(&link->text, &link->bytes);
    if (output == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fputs(".version 7.0\n.target sm_75\n.address_size 64\n", output);
    for (size_t i = 0; i < link->joined.entry_count; i++)
        declare(output, &link->joined.entries[i]);
    for (size_t i = 0; i < link->joined.global_count; i++)
        fprintf(output, ".visible .global .align 16 .b8 %s[%llu];\n", link->joined.globals[i].name,
                (unsigned long long)link->joined.globals[i].bytes);
    if (fclose(output) == 0)
        return CUDA_SUCCESS;
    free(link->text);
    link->text = NULL;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult impl_cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
    struct link *link = (struct link *)state;
    if (!handles_has(HANDLE_LINK, link))
        return CUDA_ERROR_INVALID_HANDLE;
    if (cubinOut == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = link->text ? CUDA_SUCCESS : write_text(link);
    if (result)
        return result;
    *cubinOut = link->text;
    if (sizeOut)
        *sizeOut = link->bytes + 1; /* with the zero that ends it */
    return CUDA_SUCCESS;
}

CUresult impl_cuLinkDestroy(CUlinkState state)
{
    struct link *link = (struct link *)state;
    if (!handles_remove(HANDLE_LINK, link))
        return CUDA_ERROR_INVALID_HANDLE;
    image_close(&link->joined);
    free(link->text);
    free(link);
    return CUDA_SUCCESS;
}
