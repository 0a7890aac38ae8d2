/* The linker: joins the names and parameters of its inputs into one PTX text of declarations. Nothing is compiled, so
 * unresolved symbols are not found here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contexts.h"
#include "handles.h"
#include "images.h"
#include "implemented.h"

struct link {
    char *text;
    size_t bytes;
    FILE *output; /* writes `text`; NULL once complete */
};

CUresult impl_cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues,
                              CUlinkState *stateOut)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || stateOut == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    struct link *link = calloc(1, sizeof *link);
    if (link)
        link->output = open_memstream(&link->text, &link->bytes);
    if (link == NULL || link->output == NULL || handles_add(HANDLE_LINK, link) != 0) {
        free(link);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fputs(".version 7.0\n.target sm_75\n.address_size 64\n", link->output);
    *stateOut = (CUlinkState)link;
    return CUDA_SUCCESS;
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

CUresult impl_cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                               unsigned int numOptions, CUjit_option *options, void **optionValues)
{
    struct image image;
    struct link *link = (struct link *)state;
    if (!handles_has(HANDLE_LINK, link))
        return CUDA_ERROR_INVALID_HANDLE;
    if (data == NULL || size == 0 || link->output == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_JIT_INPUT_LIBRARY || type == CU_JIT_INPUT_OBJECT)
        return CUDA_SUCCESS; /* device functions: no entries of interest */
    char *copy = calloc(1, size + sizeof(uint64_t)); /* PTX need not end in a zero here */
    if (copy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy, data, size);
    CUresult result = image_open(copy, size, &image);
    for (size_t i = 0; result == CUDA_SUCCESS && i < image.entry_count; i++)
        declare(link->output, &image.entries[i]);
    for (size_t i = 0; result == CUDA_SUCCESS && i < image.global_count; i++)
        fprintf(link->output, ".visible .global .align 16 .b8 %s[%llu];\n", image.globals[i].name,
                (unsigned long long)image.globals[i].bytes);
    if (result == CUDA_SUCCESS)
        image_close(&image);
    free(copy);
    return result;
}

CUresult impl_cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
    struct link *link = (struct link *)state;
    if (!handles_has(HANDLE_LINK, link))
        return CUDA_ERROR_INVALID_HANDLE;
    if (cubinOut == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (link->output && fclose(link->output) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    link->output = NULL;
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
    if (link->output)
        fclose(link->output);
    free(link->text);
    free(link);
    return CUDA_SUCCESS;
}
