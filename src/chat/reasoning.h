/* reasoning: reasoning apart from the answer.
 *
 * Models that think first put it between two tags, in front of the answer. The opening tag may stand at the end of the prompt, so that the
 * model's text begins in the middle of its thoughts: the last tag of the prompt tells whether they are open. The parsers differ in their
 * tags and in what they take for granted without a tag (see the table).
 *
 * The splitter works on bytes as they arrive. It holds back what may be the beginning of a tag, never more than one tag and the white space
 * before it, so no half tag is ever shown, and what comes out does not depend on where the pieces were cut:
 *
 *   pushed        held back     reasoning     content
 *   "<thi"        <thi
 *   "nk>So"                     So
 *   "? 2 <"       <             So? 2
 *   "/thi"        </thi         So? 2
 *   "nk>4"                      So? 2         4
 *
 * An answer goes through two such machines, one behind the other: the first takes the thoughts out, the second takes the calls out of what
 * is left. Both have the same three calls: begin or create before the answer, push for each piece of it, end behind the last:
 *
 *   pieces of the answer --llm_reasoning_push--> thoughts
 *                                         \----> content --llm_tool_parser_push--> text to be shown
 *                                                                          \-----> calls, which stay in the parser
 *
 * One answer of a request has one of each, and they share nothing: no lock is needed as long as each is used by one thread at a time. A
 * splitter of thoughts is a plain value without memory of its own; a parser of calls owns its calls and points into the request's tools.
 * Parsers are known by the names that vLLM's and FastDeploy's options give them (--reasoning-parser qwen3, --tool-call-parser hermes), and
 * found in the text of the chat template where nobody names one. What a template can do is found by trying: a probe is rendered and looked
 * for in the result. */
#pragma once
#include "api/chat.h"
#include "base/platform.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"

/* The length of a word without its "=2". */
LLM__PRIVATE size_t llm__alias_bare(llm__str word);

LLM__PRIVATE char llm__alias_dash(char c);

/* 1 if `name` is one of the words; the number behind its '=', or 0, goes to *number. '_' or '-' makes no difference, nor does case, except
 * in names of one letter: of "auto|q8_0=8|M=2" the names "Q8-0" (8) and "M" (2) are among the words, "m" is not. */
LLM__PRIVATE int llm__alias_among(const char *words, llm__str name, int32_t *number);

/* The same of a member of a request, whose name has one spelling: the word's, with '_' for '-'. Of "top-k|-k" only "top_k" is one. */
LLM__PRIVATE int llm__alias_member(const char *words, llm__str name);

/* One kind of reasoning parser. */
typedef struct llm__reasoning_row {
    const char *names;              /* as users write them: words for llm__alias_among */
    const char *sign;               /* in chat templates of such models; NULL: in none */
    const char *open[2], *close[2]; /* tags of at most 31 bytes; of two either will do */
    const char *drop[4];            /* tags that are left out of the answer */
    const char *label;              /* left out at the beginning of thoughts; NULL: nothing is */
    int thinks;                     /* 1: thoughts are open unless the prompt ends with the closing tag */
    int trim;                       /* 1: white space beside tags belongs to nobody */
} llm__reasoning_row;

/* The text behind which a grammar of the answer begins, where thoughts come first: they are open, or will be. NULL: they are not. */
LLM__PRIVATE const char *llm__reasoning_marker(const llm_reasoning *r);

/* The tags around the thoughts of a kind, as texts; NULL: it has none. */
LLM__PRIVATE const char *llm__reasoning_opening(llm_reasoning_kind kind);
LLM__PRIVATE const char *llm__reasoning_closing(llm_reasoning_kind kind);

/* Overwrites the tags of a kind in a text, or in JSON, with as many underscores, so that they open and close nothing. 1: there was one. */
LLM__PRIVATE int llm__reasoning_blank(llm_reasoning_kind kind, char *text, size_t len);

/* 1 if a tag of the kind is a special token, which is not shown unless it is asked for; -1: no memory. */
LLM__PRIVATE int llm__reasoning_is_special(const llm__tokenizer *tokenizer, llm_reasoning_kind kind);

/* 1 if the tokenizer reads a text as special tokens, in part or as a whole; -1: no memory. */
LLM__PRIVATE int llm__mark_is_special(const llm__tokenizer *tokenizer, const char *mark);
