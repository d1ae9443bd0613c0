/* The built-in chat templates, as their makers wrote them down: a system message, two questions and an answer between. */
#include "../test.h"
#include "api/template.h"
#include "base/json.h"
#include "base/platform.h"
#include "chat/builtin.h"

static const char builtin_talk[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"},{\"role\":\"assistant\",\"content\":"
    "\"A\"},{\"role\":\"user\",\"content\":\"V\"}],\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_generation_prompt\":true}";

/* clang-format off */
static const char *const builtin_rows[][2] = {
    {"chatml", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n"
               "<|im_start|>assistant\n"},
    {"llama-2", "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]"},
    {"llama-3", "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"internlm", "<s><|System|>:S\n<|User|>:U\n<|Bot|>:A<eoa>\n<|User|>:V\n<|Bot|>:"},
    {"internlm2", "<s><|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n"
                  "<|im_start|>assistant\n"},
    {"baichuan", "S<reserved_102>U<reserved_103>A<reserved_102>V<reserved_103>"},
    {"chatglm3", "[gMASK]sop<|system|>\n S<|user|>\n U<|assistant|>\n A<|user|>\n V<|assistant|>"},
    {"mistral", "<s>[INST] S\n\nU [/INST]A</s>[INST] V [/INST]"},
    {"vicuna", "<s>S USER: U ASSISTANT: A</s>USER: V ASSISTANT:"},
    {"alpaca", "<s>S\n\n### Instruction:\nU\n\n### Response:\nA</s>\n\n### Instruction:\nV\n\n### Response:\n"},
    {"zephyr", "<|system|>\nS</s>\n<|user|>\nU</s>\n<|assistant|>\nA</s>\n<|user|>\nV</s>\n<|assistant|>\n"},
    {"gemma", "<s><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n"},
    {"phi-3", "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nV<|end|>\n<|assistant|>\n"},
    {"deepseek", "<s>S\n\nUser: U\n\nAssistant: A</s>User: V\n\nAssistant:"}};
/* clang-format on */

static llm_result builtin_render(const char *name, const char *context, llm_text *out) {
    const char *text = llm_template_builtin(name);
    llm_template *t = NULL;
    llm_json *doc = NULL;
    llm_result r = text ? llm_json_parse(context, strlen(context), NULL, &doc) : LLM_ERR_ARG;
    if (!r) r = llm_template_open(text, strlen(text), &t);
    if (!r) r = llm_template_render(t, doc, NULL, out);
    llm_template_close(t);
    llm_json_free(doc);
    return r;
}

TEST_GROUP(builtin) {
    static const char answers[] = "{\"messages\":[{\"role\":\"assistant\",\"content\":\"A\"}]}";
    llm_text names = LLM__ZERO;
    llm__builtin_names(&names);
    for (int i = 0; i < LLM__COUNT(builtin_rows); i++) {
        llm_text got = LLM__ZERO;
        if (!CHECK(!builtin_render(builtin_rows[i][0], builtin_talk, &got) && !strcmp(got.data, builtin_rows[i][1])))
            printf("  %s: %s\n", builtin_rows[i][0], got.data ? got.data : llm_last_error());
        CHECK(names.data && strstr(names.data, builtin_rows[i][0]));
        llm_text_free(&got);
    }
    int n = 1;
    for (const char *c = names.data; c && *c; c++) n += *c == ',';
    CHECK(n == LLM__COUNT(builtin_rows)); /* each has a row */
    llm_text_free(&names);
    /* What a conversation must not be; other names; none. */
    CHECK(builtin_render("llama-2", answers, &names) && strstr(llm_last_error(), "alternate"));
    llm_text_free(&names);
    CHECK(llm_template_builtin("llama3") == llm_template_builtin("llama-3") &&
          llm_template_builtin("qwen") == llm_template_builtin("chatml"));
    CHECK(!llm_template_builtin("") && !llm_template_builtin("llama") && !llm_template_builtin("chatml|") && !llm_template_builtin("x"));
}
