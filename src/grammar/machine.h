/* machine: answers that must have a form: the machine that reads them.
 *
 * Every form is compiled to one small machine over bytes, a pushdown automaton: BYTES consumes one byte of a set, SPLIT goes two ways, CALL
 * and RETURN run a rule (so schemas and grammars may refer to themselves), REPEAT and AGAIN count the turns of a loop. A count is a number
 * in a stack frame, so maxLength 65536 costs one instruction, not 65536.
 *
 * The machine is nondeterministic: after some text it is in several places at once. A place is a thread (BYTES instruction, stack); stacks
 * are lists of frames that share their tails and are made only once (hash-consing: Ershov 1958), so two threads are equal exactly if their
 * numbers are. The sorted set of threads is a state. Like a lazy DFA (Thompson 1968; RE2) states are numbered as they are met and the step
 * state x byte -> state is remembered; bytes that no instruction tells apart share one column.
 *
 * What may the model say next? Every token is a path of bytes, and the tokens of a vocabulary are a trie. One walk over the trie in
 * preorder, with the state of each depth at hand, steps over whole subtrees once a prefix is impossible, and gives one bit a token: the
 * mask (Willard & Louf 2023). Masks are kept, with counts cut off at the longest token's length in their key: in the middle of a long
 * string all positions have the same mask, so a mask is usually a look-up. tests/e2e/test_grammar.py has the plain twin: every token of the
 * vocabulary run through the machine alone.
 *
 * One mask, step by step. The regex [0-9]+\] after "7" is in a state S with two threads: before [0-9] (again) and before "]". A vocabulary
 * of five tokens, 0 "1", 1 "12", 2 "1a", 3 ",", 4 "]", makes this trie; at[d] is the state behind d bytes of the path:
 *
 *   node  byte  depth  token   step                         mask
 *   0     ,     1      3       at[0] = S: dead              skip the subtree
 *   1     1     1      0       at[0] = S -> S = at[1]       bit 0
 *   2     2     2      1       at[1] = S -> S = at[2]       bit 1
 *   3     a     2      2       at[1] = S: dead              skip the subtree
 *   4     ]     1      4       at[0] = S -> the end         bit 4           10011 in binary: 3 of 5 tokens are allowed
 *
 * Five steps for a vocabulary of seven bytes: "1" was stepped over once for three tokens. In a real one the first dead byte spares
 * thousands of tokens at a time. The sampler sets the logits of the others to minus infinity; the token that it draws moves S on, byte by
 * byte.
 *
 * Other systems do the same work elsewhere. outlines has a table from each state of a DFA to its tokens, made beforehand (no recursion, and
 * large schemas take long). xgrammar (Dong et al. 2024) runs pushdown automata as here, and sorts the vocabulary beforehand into tokens
 * that a position decides alone and those that need the stack. llguidance walks a trie at run time, with an Earley parser over lexemes that
 * are derivatives of regexes, and "slices" as here, but made beforehand for a few regexes. llama.cpp keeps sets of stacks and tries every
 * token of the vocabulary on them. Here nothing is done beforehand but the trie: compiling takes about as long as reading the schema, and
 * what is walked is only what answers really meet.
 *
 * Who owns what: a grammar owns instructions, states and masks, behind one lock, and is shared by all answers that use it; a matcher is
 * one answer's place (a state) in it; the shelf of a model keeps the trie and the latest grammars.
 *
 * Limits (all refused or ended with a sentence): instructions, threads of a state, stack depth, bytes of states and masks. Left recursion
 * is refused. Values of JSON nest 32 levels deep: on the last one a value is whatever ends without another. */
#pragma once
#include "api/config.h"
#include "api/grammar.h"
#include "base/platform.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"

/* Most bytes of a text, instructions, nested schemas; threads of a state, frames, what a step meets. */
enum { LLM__GR_MAX_TEXT = 1 << 20, LLM__GR_MAX_OPS = 1 << 20, LLM__GR_MAX_NEST = 64 };
enum { LLM__GR_MAX_THREADS = 4096, LLM__GR_MAX_DEPTH = 400, LLM__GR_MAX_WORK = 1 << 18 };

/* How deep values of JSON nest in a schema that refers to itself, or in free JSON: without a bound a model that always opens another one,
 * as a small one does that takes the likeliest token, would never come to an end. A schema that spells out more by itself may have more. */
enum { LLM__GR_MAX_LEVEL = 32, LLM__GR_DEAD = 255 };

/* What a compilation, a mask or a token's bytes may cost: in units of some 10 to 20 ns (an instruction, a key that is compared), so a
 * quarter of a second at most; a thread that a step meets costs LLM__GR_MEET. Schemas of real programs need a hundredth of it. */
enum { LLM__GR_FUEL = 10 << 20, LLM__GR_MEET = 8 };

/* Bytes of a token; slices, their lengths that are told apart, nodes worth one; bytes of states and of masks; grammars on a shelf, their
 * bytes. */
enum { LLM__GR_MAX_TOKEN = 255, LLM__GR_SLICES = 12, LLM__GR_RUNS = 14, LLM__GR_SLICE_NODES = 8192 };
enum { LLM__GR_STATE_BYTES = 64 << 20, LLM__GR_MASK_BYTES = 32 << 20, LLM__GR_SHELF = 64, LLM__GR_SHELF_BYTES = 256 << 20 };

/* The instructions. Only BYTES looks at the text; a thread stands still on it and on ACCEPT alone:
 *
 *   SPLIT    goes to `next`, and to `other` if that is not -1: alternatives, options, and joints between fragments
 *   BYTES    consumes one byte of set a, goes to `next`
 *   CALL     pushes (this, 0) and goes to a, the first instruction of a rule;  RETURN pops, and goes to the `next` of that CALL
 *   REPEAT   pushes (this, 0) and goes to a, the body;                         AGAIN counts a turn: see llm__gr_again
 *   ACCEPT   the text may end here: a place like BYTES, whose set is empty */
typedef enum llm__gr_kind {
    LLM__GR_SPLIT,
    LLM__GR_BYTES,
    LLM__GR_CALL,
    LLM__GR_RETURN,
    LLM__GR_REPEAT,
    LLM__GR_AGAIN,
    LLM__GR_ACCEPT
} llm__gr_kind;

typedef struct llm__gr_op {
    uint8_t kind, need; /* need: levels of values that every way from here to the end of its rule goes down; LLM__GR_DEAD: there is none */
    uint8_t wide,
        part;  /* BYTES of ASCII, wide: what is not ASCII may come here as well, and leads to `next` too, over BYTES that are part */
    int32_t a; /* BYTES: set; CALL: first instruction of the rule; REPEAT: of the body; AGAIN: its REPEAT */
    int32_t next, other; /* SPLIT: the second way, -1: none */
    int32_t min, max;    /* REPEAT: turns; max -1: any number. CALL: max 1: the rule is a value of a JSON schema, a level further down */
} llm__gr_op;

/* A stack is a frame and, by `parent`, all below it. Frames never change: another count is another frame. So stacks share their tails, as
 * the lists of Lisp do, and a step copies none:
 *
 *   thread 1: frame 7 (REPEAT 40, count 2) --+
 *                                            +--> frame 3 (CALL 12) --> frame 0, the bottom
 *   thread 2: frame 9 (CALL 33) -------------+ */
typedef struct llm__gr_frame {
    int32_t op, count; /* a CALL to return from, or a REPEAT with the turns that are done (not counted beyond min when max is -1) */
    int32_t parent, depth, level; /* level: CALLs of values among them */
} llm__gr_frame;

typedef struct llm__gr_thread {
    int32_t op, frame;
} llm__gr_thread;

/* What a step has met: a thread, and how it came there; see llm__gr_meet. */
typedef struct llm__gr_met {
    llm__gr_thread at;
    int32_t fresh, base; /* frames of the stack that are new in this step; least depth of the stack on the way */
} llm__gr_met;

typedef struct llm__gr_state {
    int32_t from, n; /* its threads */
    int32_t accept;  /* the text may end here */
} llm__gr_state;

/* The byte before the name of a special token, see tags.h. */
enum { LLM__GR_SPECIAL = 0xFF };

/* Things that live in arrays of the grammar and are found by what is in them: frames, states, the work of a step, masks. */
typedef enum llm__gr_found { LLM__GR_FRAMES, LLM__GR_STATES, LLM__GR_WORK, LLM__GR_MASKS, LLM__GR_INDEXES } llm__gr_found;

/* Where the things of one kind are, by open addressing. */
typedef struct llm__gr_index {
    int32_t *slot; /* index of an entry + 1, 0: free */
    size_t cap;    /* 0 or a power of two */
} llm__gr_index;

/* What every node of the trie is to a set of characters, as [A-Za-z0-9]: which tokens at it and below are runs of the set, and where the
 * others leave it. Most of a vocabulary are words, and most loops of grammars read words; see llm__gr_leaves for what that spares. */
typedef struct llm__gr_slice {
    uint32_t ascii[4]; /* which of ASCII the set has */
    int wide;          /* it has all other characters too */
    uint32_t *kinds;   /* (nodes) bits, see llm__gr_slice_make; those of a node hold those of its subtree */
    uint32_t *runs;    /* (LLM__GR_RUNS + 1, (vocab + 31) / 32) tokens of at most so many of its characters; the last row: of any number */
    uint64_t used;     /* when, as a number that grows */
    int32_t users;     /* walks that read it now; atomic */
} llm__gr_slice;

/* The vocabulary as a trie in preorder: what to visit next is the next element, what to skip a subtree to is an index, and there is no
 * pointer to chase (llguidance's toktrie is laid out so). Node i is the byte below its nearest ancestor of depth[i] - 1. Tokens in the
 * order of their nodes stand in `order`, so those of a subtree are a run of it. */
typedef struct llm__gr_trie {
    uint8_t *byte, *depth; /* (n) depth: 1 for the first byte of a token */
    int32_t *skip;         /* (n) the node after the subtree */
    int32_t *from;         /* (n + 1) tokens that end at node i: order[from[i]] to order[from[i + 1] - 1] */
    int32_t *order;        /* ids */
    char *spelling;        /* the bytes of all tokens, one after the other */
    int32_t *end;          /* (vocab) where each ends there */
    int32_t n, vocab, longest;
    pthread_mutex_t lock; /* of the slices, which all grammars share: taken within a grammar's lock, never around one */
    llm__gr_slice slice[LLM__GR_SLICES];
    uint64_t clock;
} llm__gr_trie;

/* Bit id % 32 of words[id / 32] is 1 if the token may come next: the layout that xgrammar, llguidance and their users share. */
typedef struct llm__gr_mask {
    uint64_t key[2];
    uint32_t *words;   /* (vocab + 31) / 32 */
    int32_t n_allowed; /* tokens, without those that end the answer */
} llm__gr_mask;

struct llm_grammar {
    pthread_mutex_t lock;            /* of everything below that grows while it is used */
    int32_t refs;                    /* atomic */
    const llm__tokenizer *tokenizer; /* NULL: none, so no masks */
    llm__gr_op *op;
    size_t n_ops, ops_cap;
    uint32_t (*set)[8]; /* 256 bits each */
    size_t n_sets, sets_cap;
    uint8_t class_of[256], class_byte[256];
    int32_t n_classes, start, max_level;
    llm__gr_frame *frame; /* 0: the bottom */
    size_t n_frames, frames_cap;
    llm__gr_thread *thread;
    size_t n_threads, threads_cap;
    llm__gr_state *state; /* 0: dead, 1: where every answer starts */
    size_t n_states, states_cap;
    int32_t *to; /* (n_states, n_classes) -1: not yet known */
    size_t to_cap;
    llm__gr_met *work; /* of one step: threads met so far, see llm__gr_follow */
    size_t n_work, work_cap;
    llm__gr_mask *mask;
    size_t n_masks, masks_cap;
    llm__gr_index index[LLM__GR_INDEXES];
    int64_t *fuel;      /* what may still be spent before whoever asks (for a mask, a step, a compilation) is told no; the asker's */
    llm__gr_trie *trie; /* of the model; NULL without one */
    struct llm_matcher *matchers; /* of running answers: their states survive when the memory of states is emptied */
    const char *failed;           /* why the machine gave up what is asked of it now; NULL */
    int looking;                  /* while a mask is only looked for */
    int every_frame;              /* while left recursion is looked for: a call at the end of a rule takes a frame too */
};

struct llm__gr_kept {
    char *key; /* kind, space, after, text */
    size_t n;
    llm_grammar *grammar;
};

/* What all grammars of a model share: its trie, and the grammars that were asked for lately, so that the next request with the same schema
 * finds its masks made. Least recently used ones go when all together take too much memory. */
struct llm__gr_shelf {
    llm__attached attached;
    llm__gr_trie *trie;
    pthread_mutex_t lock;                    /* of all that follows */
    struct llm__gr_kept kept[LLM__GR_SHELF]; /* the latest first */
    int32_t n_kept;
};

struct llm_matcher {
    llm_grammar *grammar;
    struct llm_matcher *next, **link;
    int32_t state, ended;
    const char *failed; /* why it could not do what it was asked last; NULL */
};

typedef struct llm__gr_frag {
    int32_t in, out; /* out: a SPLIT whose next is still open; in -1: nothing can ever match */
} llm__gr_frag;

typedef struct llm__gr_build {
    llm_grammar *g;
    llm_result failed; /* the first error, whose sentence is llm_last_error */
    int32_t escape;    /* the rule of what follows a backslash in a JSON string; 0: none yet */
    int32_t levels;    /* of values that a schema spells out, at most */
} llm__gr_build;

/* The fragment that matches nothing, as [] in a class or `false` in a schema. In a sequence it makes all of it impossible, among
 * alternatives it disappears, and a loop around it can only be left at once. */
static const llm__gr_frag llm__gr_never = {-1, -1};

/* Takes what something costs from what the compilation may cost in all, the machines that are made on the way included. 0: it was not
 * left. Whatever a text can make many of, or long, is paid for where it is met. */
LLM__PRIVATE int llm__gr_spend(llm__gr_build *b, size_t cost);

/* Appends an instruction and returns its number. After an error it does nothing and returns 0, so builders need not ask after every step:
 * what they then write goes into instruction 0, which is nobody's. a and next mean what the table at llm__gr_kind says; -1:
 * leads nowhere yet. */
LLM__PRIVATE int32_t llm__gr_add(llm__gr_build *b, llm__gr_kind kind, int32_t a, int32_t next);

/* Matches the empty text: a single SPLIT, which is way in and way out at once. */
LLM__PRIVATE llm__gr_frag llm__gr_empty(llm__gr_build *b);

/* f, then `then`: the way out of the one leads into the other. */
LLM__PRIVATE llm__gr_frag llm__gr_seq(llm__gr_build *b, llm__gr_frag f, llm__gr_frag then);

/* Leads what follows a fragment to an instruction. */
LLM__PRIVATE void llm__gr_goto(llm__gr_build *b, llm__gr_frag f, int32_t to);

/* f or or_else. Both ways out are led into one new SPLIT, so that the alternative has one way out again:
 *
 *           +-- f --------+
 *   SPLIT --+             +-- SPLIT (out)
 *           +-- or_else --+ */
LLM__PRIVATE llm__gr_frag llm__gr_alt(llm__gr_build *b, llm__gr_frag f, llm__gr_frag or_else);

/* f repeated min to max times (max -1: without end). Only counted loops need frames:
 *
 *   f?      f or nothing            f{0,}   loop: SPLIT -> f -> loop, or out
 *   f{1}    f itself                f{1,}   f -> loop, entered at f
 *   f{2,5}  loop: REPEAT 2..5 -> f -> AGAIN loop; out
 *
 * A loop whose body is impossible matches only the empty text, if that is allowed (min 0). llama.cpp writes x{2,1000} as
 * a thousand copies of x (llama-grammar.cpp); here no count makes a machine larger. */
LLM__PRIVATE llm__gr_frag llm__gr_repeat(llm__gr_build *b, llm__gr_frag f, int32_t min, int32_t max);

/* One byte of a set of 256 bits. Equal sets made not long ago are shared: fewer sets, fewer and larger classes of bytes.
 * Only the last 256 are compared, or a grammar of many sets would take the square of its size to build. */
LLM__PRIVATE llm__gr_frag llm__gr_bytes(llm__gr_build *b, const uint32_t set[8]);

LLM__PRIVATE llm__gr_frag llm__gr_range(llm__gr_build *b, int lo, int hi);

LLM__PRIVATE llm__gr_frag llm__gr_text(llm__gr_build *b, llm__str s);

/* The same for a text that ends in 0. */
LLM__PRIVATE llm__gr_frag llm__gr_word(llm__gr_build *b, const char *s);

/* Sets of characters, as >>regex keeps them: all that there are; plain text, which may stand in a JSON string as it is. */
static const int32_t llm__gr_all[] = {0, 0x110000};
static const int32_t llm__gr_plain[] = {0x20, 0x22, 0x23, 0x5C, 0x5D, 0x110000};

/* One code point of a set (the n places where membership changes), as UTF-8; surrogates are left out. */
LLM__PRIVATE llm__gr_frag llm__gr_chars(llm__gr_build *b, const int32_t *change, size_t n);

/* One of n byte strings, sorted: a trie, so that a common beginning is one path.
 * s: n > 0 strings that agree in their first `at` bytes; depth: of the recursion, which goes one level down at every fork, not at every
 * byte. For "left", "length", "right", with ends marked by .:
 *
 *   --+-- le --+-- ft .
 *     |        +-- ngth .
 *     +-- right . */
LLM__PRIVATE llm__gr_frag llm__gr_strings(llm__gr_build *b, const llm__str *s, size_t n, size_t at, int depth);

/* One more way from a place, a SPLIT whose `other` lists its ways and whose `next` is free. */
LLM__PRIVATE void llm__gr_way(llm__gr_build *b, int32_t place, int32_t in);

/* A rule: a place to call that is filled later, so that rules may call themselves. */
LLM__PRIVATE int32_t llm__gr_rule(llm__gr_build *b);

LLM__PRIVATE void llm__gr_rule_is(llm__gr_build *b, int32_t rule, llm__gr_frag body);

/* Runs a rule here. Fragments are used once, rules as often as one likes.
 * A fragment has one way out, which two users would both lead on; a rule comes back to whoever called it. */
LLM__PRIVATE llm__gr_frag llm__gr_call(llm__gr_build *b, int32_t rule);

/* The error of a machine that gave up, by what `failed` says. */
LLM__PRIVATE llm_result llm__gr_gave_up(const char *failed);

/* The number of entry n, which has just been written behind n others that all differ: n, and it has a place now, or that of the one it is
 * equal to, and the caller forgets the new one. -1: no memory, or g->looking and it is new. A quarter of the slots stays free. */
LLM__PRIVATE int32_t llm__gr_find(llm_grammar *g, llm__gr_found kind, size_t n);

/* Empties an index. One that has grown large once is not worth clearing before each step. */
LLM__PRIVATE void llm__gr_index_clear(llm_grammar *g, llm__gr_found kind);

static const char llm__gr_too_many[] = "too many ways to read the text so far, a less ambiguous grammar expected";

/* Adds (op, frame) to the work of this step unless it is there. A frame of -1 (a push that was refused), an instruction from which nothing
 * leads to the end, and joints (SPLIT with one way) are not worth a place: that is where a stack too deep and a dead end become "not
 * allowed". `base`: the least depth the stack had on the way here within the step; frames above it were
 * pushed since the last byte. That tells a turn of a loop that consumed nothing: it ends the loop, or it would go on for ever.
 *
 * (a?){1000} shows why. Before any byte a turn could be empty, and another, and a thousand of them: with frames that count, those are a
 * thousand different threads. But if one turn may be empty, all that are left may be, so an empty turn leaves the loop, whatever the count
 * says, and never starts another. `fresh` belongs to what makes two entries equal, because the same frame (its number is its contents) may
 * be met as an old one, whose turn consumed something, and as one that was pushed in this step, whose turn did not. */
LLM__PRIVATE void llm__gr_meet(llm_grammar *g, int32_t op, int32_t frame, int32_t base);

/* Follows everything that consumes nothing from the threads met, to the BYTES where the next byte decides. The epsilon closure of
 * textbooks, with stacks. The loop ends because work is never added twice and stacks are bounded. */
LLM__PRIVATE void llm__gr_follow(llm_grammar *g);

/* The number of the state made of the threads at BYTES and ACCEPT in the work of this step; 0: dead (also when something failed). The
 * threads are written behind those of the last state, where they stay if the state is new; if it is not, the next one overwrites them.
 */
LLM__PRIVATE int32_t llm__gr_intern(llm_grammar *g);

LLM__PRIVATE void llm__gr_work_clear(llm_grammar *g);

/* The state after a byte of class k. All bytes of a class lead to one place, so any of them stands for it. INT32_MAX: the stack has not
 * been lower in this step, as the step begins here; llm__gr_meet cuts it to the depth of the frame. */
LLM__PRIVATE int32_t llm__gr_step_new(llm_grammar *g, int32_t state, int32_t k);

/* The state after a byte, 0 if there is none: a look-up in nearly all cases. The dead state's row is all 0, so it leads to itself. */
LLM__INLINE int32_t llm__gr_step(llm_grammar *g, int32_t state, uint8_t byte) {
    int32_t to = g->to[(size_t)state * (size_t)g->n_classes + g->class_of[byte]];
    return to >= 0 ? to : llm__gr_step_new(g, state, g->class_of[byte]);
}

/* States, from nothing: the dead one and that of the empty text.
 * Frame 0, the bottom of every stack, is no CALL and no REPEAT: nothing returns to it, since the start is no rule. */
LLM__PRIVATE void llm__gr_begin(llm_grammar *g);

/* Forgets all states but those of running answers, when they take too much memory: pushes their stacks anew. Matchers hold numbers of
 * states, which mean something else afterwards, so each gets its new one here. Masks stay: their keys are made of instructions and counts,
 * not of numbers of frames and states. */
LLM__PRIVATE void llm__gr_trim(llm_grammar *g);
