// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/interface/adamw_numbers.h"

// The arguments of the kernels, one structure each. The host's compiler and NVRTC both read this
// file, and NVRTC has no system headers: include only files of this kind, and use types of equal
// size in both. Pointers are device addresses; `void*` points to values of the type that the kernel
// was compiled for.
namespace finetune::kernels::cuda {

using i64 = long long;
using u64 = unsigned long long;
using u32 = unsigned int;
using u16 = unsigned short;
using u8 = unsigned char;

constexpr int kThreads = 256;  // of a block at most
constexpr int kWarp = 32;
// The longest rows that normalisation and attention hold in a block's registers.
constexpr int kLongestNorm = 4 * 4 * kThreads;
constexpr int kLongestRmsNorm = 4 * 8 * kThreads;
constexpr int kLongestAttention = 4 * 8 * kThreads;

// The parameters of one dropout (kernels/dropout_numbers.h) and where rows are in their sequences.
struct DropoutArguments {
  u32 key0, key1;
  u32 first_position;
  u32 layer_and_site;
  u32 threshold;
  float scale;
  int is_on;
  int rows_per_sample;   // without a layout: row r is position r % this of sample r / this
  const i64* sequences;  // of a layout: sequence of each row, and
  const i64* positions;  // position in it; or null
};

// Variants of add_norm(): aligned rows in warps, of this many columns at most, then in blocks.
constexpr int kNormWarpShapes = 3;
constexpr int kNormWarpColumns[kNormWarpShapes] = {3 * 4 * kWarp, 6 * 4 * kWarp, 8 * 4 * kWarp};
constexpr int kNormWarps = 4;  // of a block
// Of float32: the last shape has too few registers for it.
constexpr int kWideNormWarpShapes = kNormWarpShapes - 1;

struct AddNormArguments {
  void* sums;            // [rows, columns]; on entry the product, if there is a residual
  const void* residual;  // null: `sums` already contains s
  const float* bias;
  const float* gamma;
  const float* beta;
  void* result;
  i64 rows;
  i64 columns;
  float epsilon;
  int is_aligned;  // rows begin at multiples of four values
  DropoutArguments dropout;
};

struct AddNormBackwardArguments {
  void* gradient;  // becomes that of the sums
  void* sums;      // with dropout, becomes that of the product
  const float* gamma;
  float* parts;  // [3, blocks, columns]: of gamma, beta and bias
  i64 rows;
  i64 rows_at_once;  // rows that a block handles
  i64 columns;
  float epsilon;
  int is_aligned;
  DropoutArguments dropout;
};

// Matrices of one shape: blocks_of_each blocks in x are one matrix's.
constexpr int kMatricesOfLaunch = 8;
struct PartialSumsArguments {
  const void* rows[kMatricesOfLaunch];  // [rows, columns] each
  float* parts;                         // [matrices, blocks, columns]
  i64 count;                            // of rows
  i64 rows_at_once;                     // of a block
  i64 blocks;
  i64 columns;
  int blocks_of_each;
  int is_aligned;
};

// target[c] += parts[0][c] + parts[1][c] + ...
struct ListedSums {
  const float* parts;
  void* target;  // float32, or bfloat16 with stochastic rounding
  i64 count;
  i64 columns;
  i64 first_block;  // as ListedTensor's
  u64 rounding_key;
  int is_rounded;
};

// By value: a launch needs no copy of the list. A kernel's arguments have at most 4 KiB.
constexpr int kSumsOfLaunch = 64;
struct ColumnSumsArguments {
  ListedSums sums[kSumsOfLaunch];
  int count;
};
static_assert(sizeof(ColumnSumsArguments) <= 4096, "the arguments of a kernel");

struct BiasGeluArguments {
  const void* input;
  const float* bias;
  void* output;  // backward: the gradient, in place
  float* parts;  // backward: [blocks, columns]
  i64 rows;
  i64 rows_at_once;
  i64 columns;
  int is_aligned;
};

struct GatedProductArguments {
  void* gate;  // backward: become their gradients
  void* up;
  void* output;          // forward
  const void* gradient;  // backward
  i64 count;
  int is_aligned;
};

struct XieluArguments {
  const void* x;
  void* output;          // forward; backward: the gradient, in place
  const float* alpha_p;  // of one value
  const float* alpha_n;
  float* parts_p;  // backward: a sum for each block
  float* parts_n;
  i64 count;
  i64 values_of_block;
  int is_aligned;
};

// Variants of rms_norm(): rows in warps, then in blocks; then the same with float32 rows.
constexpr int kRmsNormWarpShapes = 2;
constexpr int kRmsNormShapes = 6;

// Rows `input` and `of_input` are of the type that the kernel was compiled for, or float32 in the
// variants for those.
struct RmsNormArguments {
  const void* input;   // [rows, columns]
  const void* branch;  // of the compiled type, is added to `input`; or null
  void* sum;           // like `input`: of both; or null
  const float* weight;
  void* output;
  i64 rows;
  i64 columns;
  float epsilon;
  int adds_one;
  int is_aligned;
};

struct RmsNormBackwardArguments {
  const void* input;
  const void* gradient;  // of the output
  void* of_input;        // may be the memory of `gradient`, unless it is added to
  void* rounded;  // `of_input` in the compiled type, may be the memory of `gradient`; or null
  const float* weight;
  float* parts;  // [blocks, columns]
  i64 rows;
  i64 rows_at_once;  // rows that a block handles
  i64 columns;
  float epsilon;
  int adds_one;
  int adds;  // to the contents of `of_input`
  int is_aligned;
};

// Tokens between two states that the backward pass finds again.
constexpr int kStateChunk = 32;
constexpr int kLongestState = 256;      // the most values of a key
constexpr int kLongestConvolution = 8;  // the most taps

struct DeltaRuleArguments {
  const void* mixed;  // [rows, columns]: queries, keys and values of each token
  const void* a;      // [rows, heads], and b
  const void* b;
  const float* a_log;  // [heads], and dt_bias
  const float* dt_bias;
  float* decay;  // [rows, heads]: g, and beta, which unit_rows() writes
  float* beta;
  const i64* starts;  // of sequences, and the end of the last one; or null
  float* inverses;    // [rows, 2, key_heads]: inverse lengths of queries and keys
  void* output;       // [rows, heads, value_size], or null
  float* state;       // [heads, key_size, value_size] of one sequence, or null
  float* begins;      // [chunks, heads, key_size, value_size], or null
  i64 rows;
  i64 columns;
  i64 tokens;  // of a sequence, without `starts`
  i64 heads;
  i64 key_heads;
  i64 value_size;
  int key_size;
  float scale;  // of queries
  float epsilon;
};
struct DeltaRuleBackwardArguments {
  DeltaRuleArguments forward;
  const void* gradient;  // of the output
  float* states;         // [blocks, kStateChunk, rows of a thread, kThreads]
  float* of_rows;        // [parts, rows, heads, 2, key_size]: of unit queries and keys
  float* of_heads;       // [parts, rows, heads, 2]: of decay and beta
  void* of_mixed;
  void* of_a;  // [rows, heads], and of b
  void* of_b;
  float* of_a_log;  // [rows, heads], parts of the sums over rows, and of dt_bias
  float* of_dt_bias;
  i64 parts;  // blocks of columns
};
struct ConvolutionArguments {
  const void* input;     // [rows, columns]
  const float* weight;   // [columns, size]
  const float* bias;     // [columns], or null
  const float* before;   // [size - 1, columns]: tokens before the first one, or null
  const void* gradient;  // of the output
  const i64* positions;  // in their sequences, or null
  void* output;          // in the backward pass, the input's gradient
  float* sums;           // [rows, columns]: gradients of sums of taps
  float* parts;          // [blocks, columns, size + 1]: of weight and bias
  i64 rows;
  i64 columns;
  i64 tokens;        // of a sequence, without positions
  i64 rows_at_once;  // of a block
  int size;
  int has_silu;
};

constexpr int kRotatedTensors = 2;
struct RotateHeadsArguments {
  void* values[kRotatedTensors] = {};  // [rows, heads * size] each
  int heads[kRotatedTensors] = {};
  const float* cos;
  const float* sin;  // [tokens, half]
  i64 tokens;
  i64 rows;
  int size;
  int half;
  int back;
};

struct DropoutKernelArguments {
  const void* input;
  void* output;
  i64 rows;  // of all samples and heads
  i64 columns;
  int heads;
  DropoutArguments dropout;
};

constexpr int kAdapterRows = 4;   // of a warp, in the product
constexpr int kAdapterWarps = 4;  // of a block, in the backward pass
constexpr int kStagedRows = 16;   // of a warp, at a time
constexpr int kLargestAdapterRank = 16;
constexpr int kAdapterVariants = 2;  // by the number of ranks
struct AdapterArguments {
  const void* input;   // x [rows, columns]
  const void* factor;  // A [rank, columns]
  void* low;           // [rows, rank]: the product, or its gradient
  void* of_input;      // the gradient of x; null: not wanted
  float* parts;        // [blocks, rank, columns], of the gradient of A
  i64 rows;
  i64 rows_at_once;  // of a warp
  i64 columns;
  float scale;
  int rank;
  int adds;  // to of_input
  int is_aligned;
  DropoutArguments dropout;
};

// Of as many as the grid has rows.
constexpr int kMostAdaptersAtOnce = 3;
struct AdaptersArguments {
  AdapterArguments of[kMostAdaptersAtOnce];
};

// Converts between [tokens, heads * size] and [samples, heads, length, size], with zeros after the
// end of each sequence.
struct HeadsArguments {
  struct Part {
    void* tokens;
    void* by_head;
    int heads;
  };
  Part parts[4] = {};
  const i64* starts;  // first token of each sample; null: b * tokens
  i64 first_token;    // number of the first in `tokens`; without starts 0
  int tokens;         // of each sample; without starts
  int length;
  int size;
  int is_aligned;
};

struct AttentionRowsArguments {
  const void* scores;   // [samples, heads, length, length], scaled
  void* probabilities;  // null: not wanted; may be the memory of scores
  void* dropped;        // after dropout; null: not wanted; may be the memory of scores
  const u8* mask;       // of keys, indexed by token; or null
  const i64* starts;    // as in HeadsArguments
  i64 first_token;
  i64 rows;
  int length;
  int heads;
  int is_causal;
  int window;
  DropoutArguments dropout;
};

struct AttentionBackwardArguments {
  const void* probabilities;
  void* gradient;  // of dropped probabilities; becomes that of scaled scores
  i64 rows;
  int length;
  int heads;
  DropoutArguments dropout;
};

// Of the forward kernel and both backward kernels. Tensors of tokens are [all_tokens, heads or
// key_heads, D].
constexpr int kAttentionTile = 64;  // tokens that a block handles
constexpr int kAttentionTileThreads = 2 * kAttentionTile;
struct TiledAttentionArguments {
  const void* query;
  const void* key;
  const void* value;
  void* context;
  float* log_sum_exp;    // [heads, all_tokens], binary, of scaled scores
  float* deltas;         // [heads, all_tokens], the first backward kernel's for the second
  const void* gradient;  // of the context
  void* of_query;
  void* of_key;
  void* of_value;
  const u8* mask;     // of keys, indexed by token; or null
  const i64* starts;  // first token of each sample, and the end; null: b * tokens
  i64 all_tokens;
  int tokens;  // of each sample; without starts
  int tiles;   // of the longest sample
  int heads;
  int key_heads;
  float scale;           // of scores, times log2(e): powers of 2 are cheaper than of e
  float gradient_scale;  // of scores
  int is_causal;
  int window;
  DropoutArguments dropout;
};

// Which keys rows of block-sparse scores are of (block_rows.cu).
struct BlockRowsShape {
  const i64* queries;  // [query_blocks]: their blocks
  const i64* keys;     // [heads, query_blocks, seen]: head * blocks + block
  i64 rows;
  i64 blocks;  // of a sequence
  int block_size;
  int heads;
  int query_blocks;
  int seen;
};

struct BlockRowsArguments {
  BlockRowsShape shape;
  const void* scores;   // [samples, heads, query_blocks, block_size, seen * block_size], scaled
  void* probabilities;  // as AttentionRowsArguments'
  void* dropped;
  const u8* mask;  // [samples, tokens] or null
  i64 tokens;      // of a sample
  DropoutArguments dropout;
};

struct BlockRowsBackwardArguments {
  BlockRowsShape shape;
  const void* probabilities;
  void* gradient;  // of dropped probabilities; becomes that of scaled scores
  DropoutArguments dropout;
};

struct CrossEntropyArguments {
  const float* logits;  // [rows, columns]
  const float* bias;    // [columns], added to them; or null
  const i64* labels;
  double* losses;
  void* gradient;  // of the type that the kernel was compiled for; may be the memory of the logits
  float* wide;     // the gradient in float32, too; or null
  i64 columns;
  double smoothing;
  double gradient_scale;
  int with_gradient;
  int is_aligned;
};

// Sorted positions whose rows are summed first where all have one index.
constexpr int kRowsOfPart = 64;

struct RowSumsArguments {
  void* target;        // [.., columns], float32 or bfloat16
  const float* rows;   // [count, columns]
  const int* indices;  // [count], sorted
  const i64* order;    // position before sorting; null: the same
  i64 count;
  i64 columns;
  i64 skipped;
  float* parts;      // [count / kRowsOfPart, columns]: sums of the parts of one index; or null
  u64 rounding_key;  // of bfloat16
};

struct ListedConversion {
  float* values;
  u16* narrow;  // bfloat16
  signed char* correction;
  i64 count;
  i64 first_block;  // as ListedTensor's
  u64 key;
  u64 first_element;
};

constexpr int kConversionsOfLaunch = 64;
struct FormatsArguments {
  ListedConversion conversions[kConversionsOfLaunch];
  int count;
};
static_assert(sizeof(FormatsArguments) <= 4096, "the arguments of a kernel");

struct JoinedRowsArguments {
  const u16* narrow;              // [.., columns] bfloat16
  const signed char* correction;  // [.., columns]
  const i64* indices;
  float* values;  // [indices, columns]
  i64 columns;
};

constexpr int kNf4Values = 64;  // with one scale
struct Nf4Arguments {
  const unsigned char* codes;  // two a byte, the first in the high half; of MXFP4 in the low one
  const void* scales;          // float; of MXFP4 bytes
  void* values;
  i64 first;  // value of the row, a multiple of 8
  i64 count;
  int is_aligned;
  float map[16];
};

// One tensor of a list. Blocks [first_block, first_block of the next) of the grid process it.
struct ListedTensor {
  const void* values;
  i64 count;
  i64 first_block;
};

struct SumOfSquaresArguments {
  const ListedTensor* tensors;
  int count;
  int blocks;
  double* parts;   // one per block
  double* result;  // of the second kernel
};

struct ListedUpdate {
  void* weight;
  signed char* correction;
  const void* gradient;
  void* state1 = nullptr;
  void* state2 = nullptr;
  float* scales1 = nullptr;
  float* scales2 = nullptr;
  i64 count;
  i64 first_value;  // of the whole tensor
  i64 first_block;
  u64 rounding_key;
  float factor;
  BitsAndBytesNumbers theirs;
  AdamWNumbers ours;
};

// Tables of bitsandbytes' codes (kernels/dynamic_map.h): of signed values, then of unsigned ones.
struct DynamicTables {
  float values[2][256];
  u32 buckets[2][(24 << 7) + 1];
};

struct AdamWArguments {
  const ListedUpdate* updates;
  const DynamicTables* tables;
  int count;
};

}  // namespace finetune::kernels::cuda
