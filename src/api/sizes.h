/* sizes: How a program and a library of different versions agree about structs. Nothing to do for who includes this header.
 *
 * * A program that was built with this header goes on running with every later libllm.so.0: functions keep their parameters, enumerators
 * their values, and a struct changes in one way only, by new members at its end. (Its source goes on compiling too, if structs are filled
 * by the names of their members.) So a program and its library may know different numbers of members. There are three kinds:
 *
 *  *   The program's, listed below: configs, and what functions fill in. The sizes that a program was compiled with go to the library with
 *   every call: where llm.h is included without LLM_IMPLEMENTATION, llm_x(...) is a macro for llm_x_sized(LLM_SIZES, ...). Members that
 *   only the library knows count as 0, the default, or are not filled in. Members that only the program knows (its library is the older
 *   one) must be 0, else the call fails with a sentence that says so: LLM_ERR_ARG, or what the function returns on error. When they are
 *   to be filled in, they become 0.
 *   The library's, which it returns a pointer to or hands to a callback: llm_model_info, llm_openai_info, llm_outputs (its items are the
 *   program's), llm_trace, llm_sample_step, the event of on_event. What only a later version has may be read if llm_version() is that
 *   version or a later one; what only a later version has of llm_chat_sampling must stay 0, else llm_chat_say refuses.
 *   All others never change: llm_text, llm_tokens, llm_early_stop, llm_repetition_detection, llm_logit_bias, llm_token_logprob,
 *   llm_spent, llm_reasoning, llm_tool_call, llm_option, llm_option_list, llm_options, llm_picture_reader, llm_frame, llm_media_file,
 *   llm_nodes_config, llm_launch.
 *
 * * Not promised: that a program runs with a library older than itself, beyond what is said above; the structs of >>api-backend, which
 * belong to one LLM_BACKEND_ABI, and a backend of another is refused; the texts of messages.
 *
 * * Bindings of other languages, and function pointers: call the _sized functions with a table of the sizes that you lay structs out with,
 * 0 for those that you never pass. The plain functions, as dlsym finds them, take the structs of the library's own version. */
#pragma once
#include "api/linkage.h"
#include "api/config.h"
#include "api/text.h"
#include "api/easy.h"
#include "api/model.h"
#include "api/media.h"
#include "api/quantize.h"
#include "api/sampler.h"
#include "api/engine.h"
#include "api/request.h"
#include "api/batch.h"
#include "api/json.h"
#include "api/template.h"
#include "api/chat.h"
#include "api/grammar.h"
#include "api/raw.h"
#include "api/options.h"
#include "api/openai.h"

/* Bytes of each struct llm_NAME. This table grows at its end, too. */
typedef struct llm_sizes {
    uint32_t sizes; /* of this struct */
    uint32_t json_limits, model_config, render_options, template_caps, grammar_config, sampling, engine_config, engine_stats;
    uint32_t request_config, event, output, request_metrics, prompt, batch_config, completion_output, request_output;
    uint32_t setup, openai_service, answer, file, estimate, media_config, media_info, quantize_config, quantize_folder_config;
} llm_sizes;

/* clang-format off */
#define LLM_SIZES_HERE { \
    sizeof(llm_sizes), \
    sizeof(llm_json_limits), sizeof(llm_model_config), sizeof(llm_render_options), sizeof(llm_template_caps), sizeof(llm_grammar_config), \
    sizeof(llm_sampling), sizeof(llm_engine_config), sizeof(llm_engine_stats), sizeof(llm_request_config), sizeof(llm_event), \
    sizeof(llm_output), sizeof(llm_request_metrics), sizeof(llm_prompt), sizeof(llm_batch_config), sizeof(llm_completion_output), \
    sizeof(llm_request_output), sizeof(llm_setup), sizeof(llm_openai_service), \
    sizeof(llm_answer), sizeof(llm_file), sizeof(llm_estimate), \
     sizeof(llm_media_config), sizeof(llm_media_info), sizeof(llm_quantize_config), \
     sizeof(llm_quantize_folder_config)}
/* clang-format on */

LLM_API int llm_version(void); /* LLM_VERSION of the library that runs */

#ifndef LLM_STATIC
/* Each as the function of the same name without _sized. */
LLM_API llm_result llm_json_parse_sized(const llm_sizes *sizes, const char *text, size_t len, const llm_json_limits *limits,
                                        llm_json **out);
LLM_API llm_result llm_model_open_sized(const llm_sizes *sizes, const char *path, const llm_model_config *cfg, llm_model **out);
LLM_API llm_result llm_model_open_files_sized(const llm_sizes *sizes, const llm_file *files, int32_t n, const llm_model_config *cfg,
                                              llm_model **out);
LLM_API llm_result llm_model_estimate_sized(const llm_sizes *sizes, const llm_model *model, const llm_engine_config *cfg,
                                            llm_estimate *out);
LLM_API llm_result llm_template_render_sized(const llm_sizes *sizes, const llm_template *t, const llm_json *context,
                                             const llm_render_options *options, llm_text *out);
LLM_API llm_result llm_render_sized(const llm_sizes *sizes, const llm_model *model, const llm_json *context,
                                    const llm_render_options *options, llm_text *out);
LLM_API void llm_template_get_caps_sized(const llm_sizes *sizes, const llm_template *t, llm_template_caps *out);
LLM_API llm_result llm_grammar_open_sized(const llm_sizes *sizes, const llm_model *model, const llm_grammar_config *cfg, llm_grammar **out);
LLM_API void llm_sampling_default_sized(const llm_sizes *sizes, const llm_model *model, llm_sampling *s);
LLM_API void llm_sampling_chat_sized(const llm_sizes *sizes, const llm_model *model, llm_sampling *s);
LLM_API llm_result llm_sampling_check_sized(const llm_sizes *sizes, const llm_model *model, const llm_sampling *s);
LLM_API llm_result llm_engine_open_sized(const llm_sizes *sizes, const llm_model *model, const llm_engine_config *cfg, llm_engine **out);
LLM_API void llm_engine_get_stats_sized(const llm_sizes *sizes, const llm_engine *engine, llm_engine_stats *out);
LLM_API llm_result llm_request_submit_sized(const llm_sizes *sizes, llm_engine *engine, const llm_request_config *cfg, llm_request **out);
LLM_API int llm_request_poll_sized(const llm_sizes *sizes, llm_request *request, llm_event *event);
LLM_API llm_result llm_request_get_output_sized(const llm_sizes *sizes, const llm_request *request, int32_t index, llm_output *out);
LLM_API void llm_request_get_metrics_sized(const llm_sizes *sizes, const llm_request *request, llm_request_metrics *out);
LLM_API int32_t llm_sample_sized(const llm_sizes *sizes, const float *logits, int32_t n, const llm_sampling *s, int64_t seed,
                                 int64_t position);
LLM_API int32_t llm_sample_steps_sized(const llm_sizes *sizes, const float *logits, int32_t n, const llm_sampling *s, const int32_t *ids,
                                       int32_t n_prompt, int32_t n_ids, int64_t seed, llm_sample_fn fn, void *user);
LLM_API llm *llm_load_sized(const llm_sizes *sizes, const char *path, const struct llm_engine_config *cfg);
LLM_API llm *llm_load_files_sized(const llm_sizes *sizes, const struct llm_file *files, int32_t n, const struct llm_engine_config *cfg);
LLM_API char *llm_generate_sized(const llm_sizes *sizes, llm *l, const char *prompt, const struct llm_sampling *s);
LLM_API void llm_get_answer_sized(const llm_sizes *sizes, const llm *l, llm_answer *out);
LLM_API llm_result llm_chat_reply_sized(const llm_sizes *sizes, llm_chat *c, const struct llm_sampling *s);
LLM_API void llm_chat_get_answer_sized(const llm_sizes *sizes, const llm_chat *c, llm_answer *out);
LLM_API llm_outputs *llm_generate_batch_sized(const llm_sizes *sizes, llm *l, const llm_prompt *prompts, int32_t n,
                                              const llm_batch_config *cfg);
LLM_API llm_outputs *llm_chat_batch_sized(const llm_sizes *sizes, llm *l, const llm_prompt *prompts, int32_t n,
                                          const llm_batch_config *cfg);
LLM_API void llm_setup_init_sized(const llm_sizes *sizes, llm_setup *s);
LLM_API llm_result llm_setup_read_sized(const llm_sizes *sizes, llm_setup *s, llm_options *o, int argc, char **argv,
                                        char *(*get)(const char *name), llm_option_list *words);
LLM_API llm_result llm_setup_find_sized(const llm_sizes *sizes, llm_setup *s, char *(*get)(const char *name));
LLM_API void llm_setup_service_sized(const llm_sizes *sizes, const llm_setup *s, const llm_options *o, const llm_model *model,
                                     llm_engine *engine, struct llm_openai_service *out);
LLM_API llm_result llm_setup_adapters_sized(const llm_sizes *sizes, const llm_setup *s, llm_engine *engine,
                                            const struct llm_openai_service *service);
LLM_API void llm_setup_free_sized(const llm_sizes *sizes, llm_setup *s);
LLM_API void llm_openai_service_init_sized(const llm_sizes *sizes, llm_openai_service *s, const llm_model *model, llm_engine *engine);
LLM_API int llm_openai_knows_model_sized(const llm_sizes *sizes, const llm_openai_service *s, const char *name, size_t len);
LLM_API llm_openai_call *llm_openai_begin_sized(const llm_sizes *sizes, const llm_openai_service *s, llm_openai_kind kind, const char *body,
                                                size_t len, void *user);
LLM_API int llm_openai_check_sized(const llm_sizes *sizes, llm_openai_call *k, const llm_openai_service *s);
LLM_API llm_result llm_media_open_sized(const llm_sizes *sizes, const llm_model *model, const llm_media_config *cfg, llm_media **out);
LLM_API llm_result llm_quantize_sized(const llm_sizes *sizes, const char *path, const char *to, const llm_quantize_config *cfg,
                                      llm_text *report);
LLM_API llm_result llm_quantize_folder_sized(const llm_sizes *sizes, const char *path, const char *to,
                                             const llm_quantize_folder_config *cfg, llm_text *report);
LLM_API llm_result llm_convert_folder_sized(const llm_sizes *sizes, const char *path, const char *to, const llm_quantize_config *cfg,
                                            llm_text *report);
LLM_API llm_result llm_imatrix_sized(const llm_sizes *sizes, const llm_model *model, const char *text, size_t len, const char *to,
                                     const llm_quantize_config *cfg, llm_text *report);
LLM_API void llm_media_get_info_sized(const llm_sizes *sizes, const llm_media *media, llm_media_info *out);
#endif
