/* The set of live handles. A handle is the address of one of our objects; a stale or foreign one
 * makes a call fail instead of crash. */
#ifndef SOFTGPU_HANDLES_H
#define SOFTGPU_HANDLES_H

enum handle_kind {
    HANDLE_CONTEXT = 1,
    HANDLE_STREAM,
    HANDLE_EVENT,
    HANDLE_MODULE,
    HANDLE_LIBRARY,
    HANDLE_FUNCTION,
    HANDLE_POOL,
    HANDLE_LINK,
    HANDLE_PHYSICAL,
    HANDLE_ARRAY,
    HANDLE_MIPMAP,
    HANDLE_GRAPH,
    HANDLE_GRAPH_NODE,
    HANDLE_GRAPH_EXEC,
    HANDLE_USER_OBJECT,
    HANDLE_RESOURCES,
    HANDLE_GREEN,
};

int handles_add(enum handle_kind kind, const void *object); /* 0, or -1 without memory */
int handles_has(enum handle_kind kind, const void *object);
/* 1 if it was there: of two threads that destroy one object, one succeeds. */
int handles_remove(enum handle_kind kind, const void *object);

#endif
