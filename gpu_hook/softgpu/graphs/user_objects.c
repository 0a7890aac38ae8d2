/* User objects: data that a program keeps as long as graphs use it. As with the driver, the
 * destructor runs in a thread of ours, so it may take locks that the releasing thread holds. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "graphs/graph_state.h"
#include "driver/handles.h"
#include "implemented.h"

/* A CUuserObject is a pointer to this. */
struct user_object {
    void *data;
    CUhostFn destroy;
    unsigned long long count; /* under the mutex */
    struct user_object *next; /* to be destroyed */
};

static struct {
    pthread_mutex_t mutex; /* guards every count, and the list */
    pthread_cond_t has_dead;
    struct user_object *dead, **end;
    int has_thread;
} objects = {.mutex = PTHREAD_MUTEX_INITIALIZER, .has_dead = PTHREAD_COND_INITIALIZER, .end = &objects.dead};

static void *destroy_dead(void *unused)
{
    pthread_mutex_lock(&objects.mutex);
    for (;;) {
        struct user_object *object = objects.dead;
        if (object == NULL) {
            pthread_cond_wait(&objects.has_dead, &objects.mutex);
            continue;
        }
        objects.dead = object->next;
        if (objects.dead == NULL)
            objects.end = &objects.dead;
        pthread_mutex_unlock(&objects.mutex);
        object->destroy(object->data);
        free(object);
        pthread_mutex_lock(&objects.mutex);
    }
    return NULL;
}

/* Under the mutex; 0, or -1. The thread stays for the life of the process. */
static int start_thread(void)
{
    sigset_t all, before;
    pthread_t thread;
    if (objects.has_thread)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    objects.has_thread = pthread_create(&thread, NULL, destroy_dead, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (objects.has_thread)
        pthread_detach(thread);
    return objects.has_thread ? 0 : -1;
}

static int retain(struct user_object *object, unsigned count)
{
    int is_live = 0;
    pthread_mutex_lock(&objects.mutex);
    if (handles_has(HANDLE_USER_OBJECT, object)) {
        object->count += count;
        is_live = 1;
    }
    pthread_mutex_unlock(&objects.mutex);
    return is_live ? 0 : -1;
}

static int release(struct user_object *object, unsigned count)
{
    int is_live = 0;
    pthread_mutex_lock(&objects.mutex);
    if (handles_has(HANDLE_USER_OBJECT, object) && object->count >= count) {
        is_live = 1;
        object->count -= count;
        if (object->count == 0) {
            handles_remove(HANDLE_USER_OBJECT, object);
            object->next = NULL;
            *objects.end = object;
            objects.end = &object->next;
            pthread_cond_signal(&objects.has_dead);
        }
    }
    pthread_mutex_unlock(&objects.mutex);
    return is_live ? 0 : -1;
}

static struct object_reference **find_reference(struct graph *graph, const struct user_object *object)
{
    struct object_reference **link = &graph->objects;
    while (*link && (*link)->object != object)
        link = &(*link)->next;
    return link;
}

CUresult objects_copy(struct graph *to, const struct graph *from)
{
    for (const struct object_reference *reference = from->objects; reference; reference = reference->next) {
        struct object_reference *copy = malloc(sizeof *copy);
        if (copy == NULL || retain(reference->object, reference->count) != 0) {
            free(copy);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        *copy = (struct object_reference){reference->object, reference->count, to->objects};
        to->objects = copy;
    }
    return CUDA_SUCCESS;
}

void objects_release(struct graph *graph)
{
    while (graph->objects) {
        struct object_reference *reference = graph->objects;
        graph->objects = reference->next;
        release(reference->object, reference->count);
        free(reference);
    }
}

CUresult impl_cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount,
                                 unsigned int flags)
{
    if (object_out == NULL || destroy == NULL || initialRefcount == 0 || initialRefcount > INT32_MAX ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    struct user_object *object = calloc(1, sizeof *object);
    if (object == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *object = (struct user_object){.data = ptr, .destroy = destroy, .count = initialRefcount};
    pthread_mutex_lock(&objects.mutex);
    int failed = start_thread() != 0 || handles_add(HANDLE_USER_OBJECT, object) != 0;
    pthread_mutex_unlock(&objects.mutex);
    if (failed) {
        free(object);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *object_out = (CUuserObject)object;
    return CUDA_SUCCESS;
}

static int is_count(unsigned count)
{
    return count && count <= INT32_MAX;
}

CUresult impl_cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    return is_count(count) && retain((struct user_object *)object, count) == 0 ? CUDA_SUCCESS
                                                                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    return is_count(count) && release((struct user_object *)object, count) == 0 ? CUDA_SUCCESS
                                                                                : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
    struct graph *keeper = graph_of(graph);
    struct user_object *kept = (struct user_object *)object;
    if (keeper == NULL || !handles_has(HANDLE_USER_OBJECT, kept) || !is_count(count) ||
        flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    struct object_reference **link = find_reference(keeper, kept);
    if (*link == NULL) {
        *link = calloc(1, sizeof **link);
        if (*link == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        (*link)->object = kept;
    }
    /* A moved reference is the caller's own: the count stays. */
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
        retain(kept, count);
    (*link)->count += count;
    return CUDA_SUCCESS;
}

CUresult impl_cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    struct graph *keeper = graph_of(graph);
    if (keeper == NULL || !is_count(count))
        return CUDA_ERROR_INVALID_VALUE;
    struct object_reference **link = find_reference(keeper, (struct user_object *)object);
    if (*link == NULL || (*link)->count < count)
        return CUDA_ERROR_INVALID_VALUE;
    struct object_reference *reference = *link;
    release(reference->object, count);
    reference->count -= count;
    if (reference->count == 0) {
        *link = reference->next;
        free(reference);
    }
    return CUDA_SUCCESS;
}
