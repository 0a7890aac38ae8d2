/* The layout of a graph: nodes in an order that respects their dependencies, child graphs in place,
 * each node in a lane. Branches that could run at the same time get lanes of their own, up to
 * LANES_MAX; further ones share lanes and so wait for each other. */
#include <stdlib.h>

#include "graphs/graph_execs.h"

#define LANES_MAX 16
#define NO_STEP ((size_t)-1)

static int add_need(struct graph_exec *exec, size_t need)
{
    if (exec->need_count == exec->need_room) {
        size_t room = exec->need_room ? exec->need_room * 2 : 32;
        size_t *needs = realloc(exec->needs, room * sizeof *needs);
        if (needs == NULL)
            return -1;
        exec->needs = needs;
        exec->need_room = room;
    }
    exec->needs[exec->need_count++] = need;
    exec->steps[exec->step_count - 1].need_count++;
    exec->steps[need].is_needed = 1;
    return 0;
}

static int add_lane(struct graph_exec *exec, struct context *context)
{
    struct lane *lanes = realloc(exec->lanes, (exec->lane_count + 1) * sizeof *lanes);
    if (lanes == NULL)
        return -1;
    exec->lanes = lanes;
    lanes[exec->lane_count++] = (struct lane){.context = context, .last = NO_STEP};
    return 0;
}

/* The lane whose latest step is one that this one needs; else a new one; else one in turn, of the
 * same context. */
static int choose_lane(struct graph_exec *exec, size_t index)
{
    struct step *step = &exec->steps[index];
    struct context *context = step->node ? step->node->context : NULL;
    for (size_t i = 0; i < step->need_count; i++) {
        size_t need = exec->needs[step->first_need + i];
        struct lane *lane = &exec->lanes[exec->steps[need].lane];
        if (lane->last != need || (context && lane->context && lane->context != context))
            continue;
        lane->context = lane->context ? lane->context : context;
        step->lane = exec->steps[need].lane;
        lane->last = index;
        return 0;
    }
    unsigned same = 0, chosen = 0;
    for (unsigned i = 0; i < exec->lane_count; i++)
        if (context == NULL || exec->lanes[i].context == context) {
            same++;
            if (exec->lanes[i].last < exec->lanes[chosen].last || exec->lanes[chosen].context != context)
                chosen = i;
        }
    if (same < LANES_MAX) {
        if (add_lane(exec, context) != 0)
            return -1;
        chosen = exec->lane_count - 1;
    }
    step->lane = chosen;
    exec->lanes[chosen].last = index;
    return 0;
}

static int add_step(struct graph_exec *exec, struct node *node)
{
    if (exec->step_count == exec->step_room) {
        size_t room = exec->step_room ? exec->step_room * 2 : 16;
        struct step *steps = realloc(exec->steps, room * sizeof *steps);
        if (steps == NULL)
            return -1;
        exec->steps = steps;
        exec->step_room = room;
    }
    exec->steps[exec->step_count++] = (struct step){.node = node, .first_need = exec->need_count};
    return 0;
}

static CUresult plan_graph(struct graph_exec *exec, struct graph *graph, size_t entry, struct node **culprit);

/* The end of a child graph comes after all its nodes that no other node of it follows. */
static CUresult plan_child(struct graph_exec *exec, struct graph *child, size_t entry, struct node **culprit)
{
    CUresult result = plan_graph(exec, child, entry, culprit);
    if (result || add_step(exec, NULL) != 0)
        return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
    size_t ends = 0;
    for (size_t i = 0; i < child->count; i++)
        if (child->nodes[i]->serves.count == 0) {
            ends++;
            if (add_need(exec, child->nodes[i]->mark) != 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
    if ((ends == 0 && add_need(exec, entry) != 0) || choose_lane(exec, exec->step_count - 1) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

/* A node's mark becomes the step at which it is done. */
static CUresult plan_node(struct graph_exec *exec, struct node *node, size_t entry, struct node **culprit)
{
    struct node *shown = node->params.type == CU_GRAPH_NODE_TYPE_GRAPH ? NULL : node;
    if (add_step(exec, shown) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t index = exec->step_count - 1;
    for (size_t e = 0; e < node->needs.count; e++)
        if (add_need(exec, node->needs.items[e].node->mark) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    if (node->needs.count == 0 && entry != NO_STEP && add_need(exec, entry) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (choose_lane(exec, index) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->mark = index;
    if (shown)
        return CUDA_SUCCESS;
    CUresult result = plan_child(exec, (struct graph *)node->params.graph.graph, index, culprit);
    node->mark = exec->step_count - 1;
    return result;
}

static CUresult plan_graph(struct graph_exec *exec, struct graph *graph, size_t entry, struct node **culprit)
{
    struct node **order = calloc(graph->count + 1, sizeof *order);
    CUresult result = order ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (order && graph_sort(graph, order) != 0) {
        *culprit = order[0];
        result = CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++)
        result = plan_node(exec, order[i], entry, culprit);
    free(order);
    return result;
}

CUresult exec_plan(struct graph_exec *exec, struct node **culprit)
{
    return plan_graph(exec, exec->graph, NO_STEP, culprit);
}
