// Package sampling turns a row of logits into the next token.
//
// A Sampler belongs to one sequence. Sample chooses a token from a row of
// logits (float32, one per token of the vocabulary, natural-log scale); Accept
// appends a token, prompt or generated, to the history that the penalties look
// at. Neither modifies the caller's logits, and after the first call with given
// settings neither allocates (see Reserve for the history).
//
// # The chain
//
// The stages run in this order. x is a logit, p the softmax of the logits that
// are left, renormalised after each stage.
//
//  1. Constraint: forbidden tokens get x = -Inf.
//  2. Logit bias: x += bias; -Inf bans a token.
//  3. Penalties, over the window of the last LastN tokens, c > 0 occurrences:
//     x = x/Repeat if x > 0, x*Repeat otherwise [CTRL], then
//     x -= c*Frequency + Presence. Prompt tokens count like generated ones.
//  4. DRY [DRY]: x -= Multiplier * Base^(n-AllowedLength) for the token that
//     would extend a repetition of n >= AllowedLength tokens. Sequences are not
//     followed across a token in which a breaker ends, and such a token is not
//     penalised where it followed a repetition.
//  5. Greedy, if Temperature < GreedyBelow: the best token is the answer. The
//     stages below, chance included, are left out.
//  6. Top-k: the K best.
//  7. Typical [Typical]: with H = -sum p ln p, tokens by ascending
//     |-ln p - H| until their mass reaches TypicalP.
//  8. Top-p [Nucleus]: tokens by descending p until their mass reaches TopP.
//  9. Min-p [MinP]: p >= MinP * max p.
//  10. XTC [XTC]: with the given probability, all tokens with p >= Threshold
//     but the least likely of them are removed.
//  11. Temperature: x /= T, and a draw from the softmax.
//
// Mirostat 2 [Mirostat], when enabled, replaces 6 to 11: at temperature T, tokens
// with -log2 p > mu are removed (never the best), one is drawn, and with S its
// -log2 p before the removal, mu -= Eta*(S-Tau). mu starts at 2*Tau. (llama.cpp
// takes S after renormalisation; the paper does not, and neither does this.)
//
// # Ties, bits, random numbers
//
// Among equal logits the lower id ranks first, everywhere. Sets are kept by
// ascending id, and the draw walks them in that order. Sums and exponentials are
// float64 with operations in a fixed order, without fused multiplication and
// without math.Exp, so a choice is the same on every platform. Random numbers
// come from PCG-DXSM (math/rand/v2, an algorithm the standard library pins),
// seeded with Seed; the upper 53 bits of an output, times 2^-53, are a number in
// [0, 1). Every token that is not greedy takes one number, and one more, before
// it, if XTC is on.
//
// # Errors
//
// New and Params.Validate list all faults in one error, ErrInvalid. A row with
// NaN or +Inf, or with nothing but -Inf, is ErrNonFinite with counts and the
// first place; -Inf alone is a mask. See Sample.
//
// # Sources
//
// CTRL: Keskar et al. 2019, arXiv:1909.05858. DRY: oobabooga/text-generation-webui
// pull request 5677. Typical: Meister et al. 2022, arXiv:2202.00666. Nucleus:
// Holtzman et al. 2019, arXiv:1904.09751. MinP: Nguyen et al. 2024,
// arXiv:2407.01082. XTC: text-generation-webui pull request 6335. Mirostat: Basu
// et al. 2020, arXiv:2007.14966.
package sampling
