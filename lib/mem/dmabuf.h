/* SPDX-License-Identifier: Apache-2.0 */
/* The dma-buf operations of spaces (space.h): for host memory through udmabuf, for GPU memory through the CUDA driver.
 */
#ifndef HW_DMABUF_H
#define HW_DMABUF_H

#include "mem/space.h"

int hw_udmabuf_alloc(const struct hw_space *s, size_t len, struct hw_dmabuf *out);
void hw_udmabuf_free(const struct hw_space *s, struct hw_dmabuf *b);

int hw_cuda_dmabuf_alloc(const struct hw_space *s, size_t len, struct hw_dmabuf *out);
void hw_cuda_dmabuf_free(const struct hw_space *s, struct hw_dmabuf *b);
int hw_cuda_dmabuf_of(const struct hw_space *s, const void *ptr, size_t len, size_t window, struct hw_dmabuf *out);
uint64_t hw_cuda_dmabuf_id(const struct hw_space *s, const void *ptr);

#endif
