#include "chat/builtin.h"
#include "api/linkage.h"
#include "api/text.h"
#include "api/template.h"
#include "base/platform.h"
#include "base/text.h"
#include "chat/reasoning.h"

/* What most begin with, and end with. */
#define LLM__TPL_EACH "{% for message in messages %}"
#define LLM__TPL_TALK "{% for message in messages if message.role != 'system' %}"
#define LLM__TPL_DONE "{% endfor %}{% if add_generation_prompt %}"
/* The system message's text in `system`, for forms that put it into the first question or before everything. */
#define LLM__TPL_SYSTEM(otherwise) \
    "{% set ns = namespace(system=" otherwise ") %}" \
    "{% for message in messages if message.role == 'system' %}{% set ns.system = message.content %}{% endfor %}"

/* clang-format off */
static const llm__builtin llm__builtins[] = {
    {"chatml", "qwen|yi", LLM__TPL_EACH "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n" LLM__TPL_DONE
     "<|im_start|>assistant\n{% endif %}"},
    {"llama-2", "llama2|llama-2-chat|codellama", LLM__TPL_SYSTEM("''") LLM__TPL_TALK
     "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
     "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
     "{% if message.role == 'user' %}{{ bos_token }}[INST] "
     "{% if loop.first and ns.system %}<<SYS>>\n{{ ns.system }}\n<</SYS>>\n\n{% endif %}{{ message.content | trim }} [/INST]"
     "{% else %} {{ message.content | trim }} {{ eos_token }}{% endif %}{% endfor %}"},
    {"llama-3", "llama3|llama-3-instruct", "{{ bos_token }}" LLM__TPL_EACH
     "<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n{{ message.content | trim }}<|eot_id|>" LLM__TPL_DONE
     "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"},
    {"internlm", "internlm-chat|internlm-chat-7b|internlm-chat-20b", "{{ bos_token }}" LLM__TPL_EACH
     "{% if message.role == 'system' %}<|System|>:{{ message.content }}\n"
     "{% elif message.role == 'user' %}<|User|>:{{ message.content }}\n"
     "{% else %}<|Bot|>:{{ message.content }}<eoa>\n{% endif %}" LLM__TPL_DONE "<|Bot|>:{% endif %}"},
    {"internlm2", "internlm2-chat|internlm2-chat-7b|internlm2-chat-20b|internlm2-chat-1_8b", "{{ bos_token }}" LLM__TPL_EACH
     "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n" LLM__TPL_DONE "<|im_start|>assistant\n{% endif %}"},
    {"baichuan", "baichuan-chat|baichuan-13b-chat", LLM__TPL_EACH
     "{% if message.role == 'system' %}{{ message.content }}{% elif message.role == 'user' %}<reserved_102>{{ message.content }}"
     "{% else %}<reserved_103>{{ message.content }}{% endif %}" LLM__TPL_DONE "<reserved_103>{% endif %}"},
    {"chatglm3", "chatglm3-6b", "[gMASK]sop" LLM__TPL_EACH "<|{{ message.role }}|>\n {{ message.content }}" LLM__TPL_DONE
     "<|assistant|>{% endif %}"},
    {"mistral", "mistral-instruct|mixtral", "{{ bos_token }}" LLM__TPL_SYSTEM("''") LLM__TPL_TALK
     "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
     "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
     "{% if message.role == 'user' %}[INST] {% if loop.first and ns.system %}{{ ns.system }}\n\n{% endif %}{{ message.content }} [/INST]"
     "{% else %}{{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"},
    {"vicuna", "vicuna-v1.1", "{{ bos_token }}"
     LLM__TPL_SYSTEM("\"A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and "
                 "polite answers to the user's questions.\"")
     "{{ ns.system }} " LLM__TPL_TALK
     "{% if message.role == 'user' %}USER: {{ message.content }} {% else %}ASSISTANT: {{ message.content }}{{ eos_token }}{% endif %}"
     LLM__TPL_DONE "ASSISTANT:{% endif %}"},
    {"alpaca", "", "{{ bos_token }}"
     LLM__TPL_SYSTEM("'Below is an instruction that describes a task. Write a response that appropriately completes the request.'")
     "{{ ns.system }}\n\n" LLM__TPL_TALK
     "{% if message.role == 'user' %}### Instruction:\n{{ message.content }}\n\n"
     "{% else %}### Response:\n{{ message.content }}{{ eos_token }}\n\n{% endif %}" LLM__TPL_DONE "### Response:\n{% endif %}"},
    {"zephyr", "zephyr-7b", LLM__TPL_EACH "<|{{ message.role }}|>\n{{ message.content }}{{ eos_token }}\n" LLM__TPL_DONE
     "<|assistant|>\n{% endif %}"},
    {"gemma", "gemma-2|gemma2|gemma3|gemma-3", "{{ bos_token }}" LLM__TPL_SYSTEM("''") LLM__TPL_TALK
     "<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}\n"
     "{% if loop.first and ns.system %}{{ ns.system | trim }}\n\n{% endif %}{{ message.content | trim }}<end_of_turn>\n" LLM__TPL_DONE
     "<start_of_turn>model\n{% endif %}"},
    {"phi-3", "phi3", LLM__TPL_EACH "<|{{ message.role }}|>\n{{ message.content }}<|end|>\n" LLM__TPL_DONE "<|assistant|>\n{% endif %}"},
    {"deepseek", "deepseek-llm|deepseek-v2", "{{ bos_token }}" LLM__TPL_EACH
     "{% if message.role == 'user' %}User: {{ message.content }}\n\n"
     "{% elif message.role == 'assistant' %}Assistant: {{ message.content }}{{ eos_token }}{% else %}{{ message.content }}\n\n{% endif %}"
     LLM__TPL_DONE "Assistant:{% endif %}"}};
/* clang-format on */

LLM__PRIVATE const llm__builtin *llm__builtin_find(const char *name) {
    for (int i = 0; i < LLM__COUNT(llm__builtins); i++)
        if (llm__alias_among(llm__builtins[i].name, llm__lit(name), NULL) ||
            llm__alias_among(llm__builtins[i].others, llm__lit(name), NULL))
            return &llm__builtins[i];
    return NULL;
}

LLM__PRIVATE void llm__builtin_names(llm_text *out) {
    for (int i = 0; i < LLM__COUNT(llm__builtins); i++) llm_text_format(out, i ? ", %s" : "%s", llm__builtins[i].name);
}

LLM_API const char *llm_template_builtin(const char *name) {
    const llm__builtin *b = llm__builtin_find(name);
    return b ? b->text : NULL;
}
