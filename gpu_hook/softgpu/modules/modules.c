/* The life of modules, and look-ups of functions by name. */
#include "modules/modules.h"

#include <stdlib.h>
#include <string.h>

#include "queue/captures.h"
#include "driver/handles.h"
#include "implemented.h"
#include "modules/modules_state.h"
#include "memory/window.h"

static struct {
    pthread_mutex_t mutex; /* guards the list, and the functions and globals of every module */
    struct module *all;
} modules = {.mutex = PTHREAD_MUTEX_INITIALIZER};

struct function *function_of(const void *handle)
{
    return handles_has(HANDLE_FUNCTION, handle) ? (struct function *)handle : NULL;
}

/* Under the mutex, or before the module is in the list. */
static struct function *add_function(struct module *module, const struct entry *entry)
{
    struct function *function = calloc(1, sizeof *function);
    if (function == NULL || handles_add(HANDLE_FUNCTION, function) != 0) {
        free(function);
        return NULL;
    }
    function->module = module;
    function->name = entry->name;
    function->parameters = entry->parameters;
    function->parameter_count = entry->parameter_count;
    function->parameter_bytes = entry->parameter_bytes;
    function->builtin = builtin_find(entry);
    function->carveout = -1;
    function->next = module->functions;
    module->functions = function;
    module->function_count++;
    return function;
}

static void free_module(struct module *module)
{
    while (module->functions) {
        struct function *function = module->functions;
        module->functions = function->next;
        handles_remove(HANDLE_FUNCTION, function);
        if (function->is_opaque)
            free((char *)function->name);
        free(atomic_load(&function->prepared));
        free(function);
    }
    for (size_t i = 0; i < module->image.global_count && module->globals; i++) {
        /* A library's globals go with the context that made them; their address may belong to
         * another allocation now. */
        struct allocation found;
        struct global_place *place = &module->globals[i];
        if (place->address && window_find(place->address, &found) == 0 && found.id == place->allocation_id)
            window_free(place->address);
    }
    free(module->globals);
    image_close(&module->image);
    free(module);
}

CUresult module_load(const void *data, size_t bytes, struct context *context, struct module **out)
{
    CUresult result = capture_check_unsafe(); /* loading may allocate, and wait for the context */
    if (result)
        return result;
    struct module *module = calloc(1, sizeof *module);
    if (module == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->context = context;
    result = image_open(data, bytes, &module->image);
    for (size_t i = 0; result == CUDA_SUCCESS && i < module->image.entry_count; i++)
        if (add_function(module, &module->image.entries[i]) == NULL)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    module->globals = calloc(module->image.global_count + 1, sizeof *module->globals);
    if (result == CUDA_SUCCESS &&
        (module->globals == NULL || handles_add(context ? HANDLE_MODULE : HANDLE_LIBRARY, module) != 0))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free_module(module);
        return result;
    }
    pthread_mutex_lock(&modules.mutex);
    module->next = modules.all;
    modules.all = module;
    pthread_mutex_unlock(&modules.mutex);
    *out = module;
    return CUDA_SUCCESS;
}

CUresult module_load_file(const char *path, struct context *context, struct module **out)
{
    size_t bytes;
    char *data;
    CUresult result = path ? image_read_file(path, &data, &bytes) : CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    result = module_load(data, bytes, context, out);
    free(data);
    return result;
}

void module_unload(struct module *module)
{
    pthread_mutex_lock(&modules.mutex);
    struct module **link = &modules.all;
    while (*link && *link != module)
        link = &(*link)->next;
    if (*link)
        *link = module->next;
    pthread_mutex_unlock(&modules.mutex);
    free_module(module);
}

void modules_close_all(struct context *context)
{
    for (;;) {
        pthread_mutex_lock(&modules.mutex);
        struct module *module = modules.all;
        while (module && module->context != context)
            module = module->next;
        pthread_mutex_unlock(&modules.mutex);
        if (module == NULL)
            return;
        handles_remove(HANDLE_MODULE, module);
        module_unload(module);
    }
}

/* Under the mutex: an image that cannot be read may hold any name. */
static struct function *add_unknown(struct module *module, const char *name)
{
    struct entry entry = {.name = strdup(name)};
    struct function *function = entry.name ? add_function(module, &entry) : NULL;
    if (function == NULL) {
        free(entry.name);
        return NULL;
    }
    function->is_opaque = 1;
    function->builtin = NULL;
    return function;
}

CUresult module_find(struct module *module, const char *name, struct function **out)
{
    pthread_mutex_lock(&modules.mutex);
    struct function *function = module->functions;
    while (function && strcmp(function->name, name) != 0)
        function = function->next;
    if (function == NULL && module->image.is_opaque)
        function = add_unknown(module, name);
    pthread_mutex_unlock(&modules.mutex);
    *out = function;
    return function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* Under the mutex. */
static CUresult place_global(struct context *context, uint64_t bytes, struct global_place *place)
{
    struct allocation found;
    if (place->address && window_find(place->address, &found) == 0 && found.id == place->allocation_id)
        return CUDA_SUCCESS;
    CUresult result = window_allocate(context, bytes, &place->address);
    if (result == CUDA_SUCCESS && window_find(place->address, &found) == 0)
        place->allocation_id = found.id;
    return result;
}

CUresult module_global(struct module *module, const char *name, CUdeviceptr *address, size_t *bytes)
{
    struct context *context = module->context;
    CUresult result = context ? CUDA_SUCCESS : context_current(&context);
    if (result)
        return result;
    size_t i = 0;
    while (i < module->image.global_count && strcmp(module->image.globals[i].name, name) != 0)
        i++;
    if (i == module->image.global_count)
        return CUDA_ERROR_NOT_FOUND;
    pthread_mutex_lock(&modules.mutex);
    result = place_global(context, module->image.globals[i].bytes, &module->globals[i]);
    if (result == CUDA_SUCCESS && address)
        *address = module->globals[i].address;
    if (result == CUDA_SUCCESS && bytes)
        *bytes = module->image.globals[i].bytes;
    pthread_mutex_unlock(&modules.mutex);
    return result;
}

unsigned module_list(struct module *module, const void **out, unsigned room)
{
    unsigned count = 0;
    pthread_mutex_lock(&modules.mutex);
    for (struct function *function = module->functions; function; function = function->next)
        if (count++ < room)
            out[count - 1] = function;
    pthread_mutex_unlock(&modules.mutex);
    return count;
}
