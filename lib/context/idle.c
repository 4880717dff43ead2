/* SPDX-License-Identifier: Apache-2.0 */
#include "context/context.h"

#include "base/thread.h"

#include <stdlib.h>

void hw_idle_init(struct hw_idle *i)
{
    hw_lock_init(&i->lock);
}

void hw_idle_free(struct hw_idle *i)
{
    struct hw_op *block;
    while ((block = hw_idle_take(i, 1)))
        free(block);
    pthread_mutex_destroy(&i->lock);
}

struct hw_op *hw_idle_take(struct hw_idle *i, unsigned n)
{
    struct hw_op *list = NULL, *block;
    pthread_mutex_lock(&i->lock);
    for (; n && (block = i->first); n--) {
        i->first = block->user;
        i->n--;
        block->user = list;
        list = block;
    }
    pthread_mutex_unlock(&i->lock);
    return list;
}

void hw_idle_keep(struct hw_idle *i, struct hw_op *list)
{
    pthread_mutex_lock(&i->lock);
    while (list && i->n < HW_IDLE_MOST) {
        struct hw_op *next = list->user;
        list->user = i->first;
        i->first = list;
        i->n++;
        list = next;
    }
    pthread_mutex_unlock(&i->lock);
    while (list) {
        struct hw_op *next = list->user;
        free(list);
        list = next;
    }
}
