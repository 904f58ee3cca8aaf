// SPDX-License-Identifier: MIT
#pragma once

#include "export/gguf_file.h"

namespace finetune {

// How llama.cpp lays out tensors of transformers. Each function changes `rows` and `shape` of a
// tensor, and `restored` so that it undoes the change.

// [in, out] becomes [out, in]; the matrix is in memory while its rows are read.
void transpose(GgufTensor& tensor);

// transformers rotates the halves of a head, llama.cpp neighbours: of each head the row i of the
// first half is followed by the row i of the second.
void interleave_halves(GgufTensor& tensor, int64_t heads);

// The rows from `first` on are [outer, inner, size] and become [inner, outer, size].
void exchange_row_groups(GgufTensor& tensor, int64_t first, int64_t outer, int64_t inner,
                         int64_t size);

// The same of the columns of a matrix.
void exchange_column_groups(GgufTensor& tensor, int64_t outer, int64_t inner, int64_t size);

// [C, 1, K] becomes [C, K].
void remove_middle(GgufTensor& tensor);

void add_one(GgufTensor& tensor);

// x becomes -exp(x).
void negate_exponential(GgufTensor& tensor);

}  // namespace finetune
