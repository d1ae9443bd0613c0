/* ============================================================================
 * >>kernels-ref   What the kernels work on: instruction sets, rounded activations, packed weights.
 * ============================================================================
 * Nearly all time goes into products y = W x of a weight (rows, cols) with the activations of some tokens. With one token every weight is
 * used once: the limit is the memory, which gives about 30 GB/s to two cores; 100 MB of weights cannot make more than 300 tokens a second,
 * whatever the arithmetic. So weights keep the few bits they have in the file, and are read once, front to back. With many tokens the limit
 * is the arithmetic. There vpdpbusd (VNNI) does 64 multiplications of bytes an instruction, eight times what floats can. So activations are
 * rounded to bytes too, 32 at a time with a scale. Both ends are met by one layout, made once at load:
 *
 *     a packed block is 16 rows x 32 columns; lane r of a vector is row r, and holds 4 columns of it:
 *
 *                      lane 0         lane 1                lane 15
 *       vector 0   w[0][0..3]     w[1][0..3]     ...    w[15][0..3]        (64 bytes)
 *       vector 1   w[0][4..7]     w[1][4..7]     ...
 *       ...
 *       vector 7   w[0][28..31]   ...
 *
 * vpdpbusd multiplies such a vector with the same 4 activations in every lane and adds the four products of each lane to a 32-bit sum:
 * after 8 of them each lane has its row's dot product of 32 columns. No sum ever runs across lanes, and a token needs nothing but its own
 * 32 bytes. A block that is unpacked once serves all tokens of a tile.
 *
 * 8-bit weights take 8 vectors as drawn. 4-bit ones take four: vector j has the columns of vector j in its low nibbles and those of
 * vector j + 4 (16 columns further) in the high ones. With 5 or 6 bits it is five or six, which leave 3 or 2 bits of each byte for the
 * pieces of the other three or two vectors (llm__piece_of). Scales follow, then minimums, 16 of each, as the file
 * has them: f16, or small integers with an f16 scale for 256 columns in front of every eighth block. So w = scale * (u - zero) + minimum
 * keeps the file's exact meaning. Formats without a layout of their own become bytes with f32 scales for 16 columns (G16). Floats stay what
 * they are: 16 rows of a column side by side; of bf16, two columns a lane, as vdpbf16ps wants them.
 *
 * A block of Q4_1 (kind Q4M), whose 16 rows have 16 blocks of 20 bytes in the file, has 320 bytes too, which is 5 bits a weight:
 *
 *     byte   0 ...  63   vector 0: byte 4 r + c has w[r][c] in its low nibble and w[r][16 + c] in its high one  (rows r = 0..15, c = 0..3)
 *           64 ... 127   vector 1: w[r][4 + c], w[r][20 + c]
 *          128 ... 191   vector 2: w[r][8 + c], w[r][24 + c]
 *          192 ... 255   vector 3: w[r][12 + c], w[r][28 + c]
 *          256 ... 287   16 scales, f16: row r's at 256 + 2 r
 *          288 ... 319   16 minimums, f16
 *
 * Neighbouring row blocks of one kind stand together: of each 32 columns first the bits of both, then the scales of both, then the minimums,
 * and heads side by side. So a product of 32 rows reads one stream of memory, and every vector begins on a cache line whatever the format
 * (a block of Q6_K has 416 bytes, two have 832, which is 13 lines). Floats likewise: of each column, or two, 16 rows and 16 rows.
 *
 * Row 3, column 17 is the high nibble of byte 13. Is that 9, and are scale and minimum of the row 0.02 and -0.15, then the weight is
 * 0.02 * 9 - 0.15 = 0.03. Unpacking is a mask for the first four vectors, a shift and a mask for the latter four. Eight blocks of Q4_K
 * take 64 + 8 * (256 + 16 + 16) bytes, 4.625 bits a weight where the file has 4.5: its scales of 6 bits have become bytes.
 *
 * With x ~ d q (q: signed bytes) a block adds to a row's result
 *
 *     sum of w x  =  scale * d * sum of u q  +  (minimum - zero * scale) * d * sum of q
 *
 * The second sum does not depend on the row: it is made once, when the activation is rounded (llm__act.s). So a zero point costs nothing:
 * it is a minimum. That is also how signed weights pass through vpdpbusd, whose first operand is unsigned: they are stored plus 128. */

/* ---- Instruction sets ---- */

/* Worse ones first. All give a row the same result whoever is beside it in a batch; between two sets the last bits may differ, for only
 * some fuse a multiplication with an addition. */
typedef enum llm__isa {
    LLM__ISA_SCALAR = 0, LLM__ISA_AVX2, LLM__ISA_AVXVNNI, LLM__ISA_AVX512, LLM__ISA_AVX512VNNI, LLM__ISA_AVX512BF16, LLM__ISA_AMX,
    LLM__ISA_NEON, LLM__ISA_COUNT
} llm__isa;

/* As users write it, and as llm_isa_list shows it. */
static const char *llm__isa_name(llm__isa isa) {
    static const char *const names[LLM__ISA_COUNT] = {"scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx", "neon"};
    return names[isa];
}

#if LLM__X86
/* Whether the compiler knows AVX-VNNI, and vdpbf16ps. */
#if defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11
#define LLM__HAS_2021 1
#else
#define LLM__HAS_2021 0
#endif

/* Compilers disagree on the names of these features: asked of the CPU itself, once avx2 is known to be there. Tiles need the system's leave. */
static int llm__has_avxvnni(void) {
    unsigned a = 0, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

static int llm__has_amx(void) {
    unsigned a, b, c, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 13) == 13 && llm__ask_for_tiles(); /* bf16, tiles, int8 */
}
#endif

/* 1 if this CPU runs it. */
static int llm__isa_here(llm__isa isa) {
    if (isa == LLM__ISA_SCALAR) return 1;
#if LLM__X86
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512dq");
    int vnni = avx512 && __builtin_cpu_supports("avx512vnni");
#ifdef LLM__TEST_EMULATE_AVX512
    if (isa >= LLM__ISA_AVXVNNI && isa <= LLM__ISA_AMX) return 1;
#endif
    if (isa == LLM__ISA_AVX2) return avx2;
    if (isa == LLM__ISA_AVXVNNI) return avx2 && LLM__HAS_2021 && llm__has_avxvnni();
    if (isa == LLM__ISA_AVX512) return avx512;
    if (isa == LLM__ISA_AVX512VNNI) return vnni;
    int bf16 = vnni && LLM__HAS_2021 && __builtin_cpu_supports("avx512bf16");
    if (isa == LLM__ISA_AVX512BF16) return bf16;
    if (isa == LLM__ISA_AMX) return bf16 && llm__has_amx();
#elif LLM__NEON
    if (isa == LLM__ISA_NEON) return (getauxval(AT_HWCAP) & 1u << 20) != 0; /* HWCAP_ASIMDDP */
#endif
    return 0;
}

/* In a buffer of the thread. */
LLM_API const char *llm_isa_list(void) {
    static LLM__THREAD_LOCAL char all[64];
    size_t at = 0;
    for (int k = 0; k < LLM__ISA_COUNT; k++)
        if (llm__isa_here((llm__isa)k)) at += (size_t)snprintf(all + at, sizeof all - at, k ? " %s" : "%s", llm__isa_name((llm__isa)k));
    return all;
}

/* The instruction set of a name (NULL: the best). LLM_ERR_ARG with the names there are. On Intel's cores vdpbf16ps takes as long as four
 * multiply-adds: there it is no gain. */
static llm_result llm__isa_find(const char *name, llm__isa *out) {
    for (int i = LLM__ISA_COUNT - 1; i >= 0; i--) {
        *out = (llm__isa)i;
#if LLM__X86
        if (!name && i == LLM__ISA_AVX512BF16 && __builtin_cpu_is("intel")) continue;
#endif
        if ((!name || !strcmp(name, llm__isa_name(*out))) && llm__isa_here(*out)) return LLM_OK;
    }
    return llm__error(LLM_ERR_ARG, "isa %s: this CPU has %s", name, llm_isa_list());
}

