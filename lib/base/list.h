/* SPDX-License-Identifier: Apache-2.0 */
/* An intrusive circular doubly linked list with a head. A node that is in no list points to itself. */
#ifndef HW_LIST_H
#define HW_LIST_H

#include "base/base.h"

struct hw_list {
    struct hw_list *next, *prev;
};

static inline void hw_list_init(struct hw_list *l)
{
    l->next = l->prev = l;
}

static inline bool hw_list_empty(const struct hw_list *l)
{
    return l->next == l;
}

static inline void hw_list_append(struct hw_list *head, struct hw_list *n)
{
    n->prev = head->prev;
    n->next = head;
    head->prev->next = n;
    head->prev = n;
}

/* Removes n from its list. Has no effect on an initialized node that is in no list. */
static inline void hw_list_remove(struct hw_list *n)
{
    n->prev->next = n->next;
    n->next->prev = n->prev;
    hw_list_init(n);
}

#define hw_list_first(head, type, member) (hw_list_empty(head) ? NULL : hw_container_of((head)->next, type, member))

/* The body may remove and free `it`. */
/* NOLINTBEGIN(bugprone-macro-parentheses): the macro declares it and tmp */
#define hw_list_each(it, tmp, head) \
    for (struct hw_list *it = (head)->next, *tmp = it->next; it != (head); it = tmp, tmp = it->next)
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
