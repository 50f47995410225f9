// Package quant reads and writes the block formats in which ggml files store
// weights. It is plain Go and it is the definition: assembly kernels are tested
// for equality with it. A [Format] says how many values share a block and how
// many bytes it takes. A row of n values is n/Block blocks without padding or
// alignment; all numbers in a block are little-endian.
//
// # Two readings of a row
//
// [Format.Dequantize] gives float32 values. [Format.Unpack] gives the integer
// form, an [IntRow], canonical and part of the library's numerics contract:
//
//   - Values come in groups of Format.Group: 32, or 16 for Q2_K, Q3_K and Q6_K.
//   - Q has one int8 per value, the format's zero point taken off: Q4_0 nibble-8,
//     Q5_0 q-16, Q3_K q-4, Q6_K q-32, Q8_0 as stored. Q4_1, Q5_1, Q2_K, Q4_K and
//     Q5_K keep the unsigned q, having a minimum instead. IQ4_NL and IQ4_XS have
//     the value of their table, MXFP4 twice the E2M1 value.
//   - Scale has one float32 per group: the block's f16 scale d, or d*sc where
//     there are sub-scales sc, or for MXFP4 half of the E8M0 power of two.
//   - Min has one float32 per group, if Format.Min: the f16 minimum of Q4_1 and
//     Q5_1, -(dmin*m) of Q2_K, Q4_K and Q5_K.
//
// A value is Scale*Q + Min, the product rounded to float32 and then the sum. Fused
// multiply-adds are not used and would not change a bit: at most 23 significant
// bits go into d*sc*Q, so products are exact, and a value is the exact one of
// the format, rounded once where a minimum is added and not at all elsewhere.
//
// # Edges
//
// Infinite and NaN scales go through the formula. MXFP4's exponent 255, a NaN in
// the specification, is 2^128 as in ggml, so all its values but 0 and the two
// of 0.5 overflow. Subnormal scales arise from MXFP4's exponents 0 and 1 only,
// and are kept exactly: an f16 times an integer is 0 or at least 2^-24.
//
// # Errors, concurrency, sources
//
// What a file or a caller's data can cause is an error that wraps an Err value.
// Slices of wrong lengths are mistakes inside the library and panic, as comments
// say. All is safe for concurrent use; an IntRow belongs to one goroutine. Layouts
// are those of ggml, values were checked against its gguf Python package; E2M1
// and E8M0: OCP Microscaling Formats 1.0; half precision: IEEE 754.
package quant
