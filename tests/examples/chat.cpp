// C++: chat MODEL QUESTION...
// Handles that close themselves, errors as exceptions, pieces to a function.
#include "llm.h"
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

struct closer {
    void operator()(llm *l) const { llm_free(l); }
    void operator()(llm_chat *c) const { llm_chat_free(c); }
};

class conversation {
  public:
    conversation(const std::string &model, const std::string &system)
        : model_(checked(llm_load(model.c_str(), nullptr))), chat_(checked(llm_chat_new(model_.get(), system.c_str()))) {}

    // The whole answer; `show` gets it piece by piece, and stops it by returning false.
    std::string ask(const std::string &question, const std::function<bool(std::string_view)> &show) {
        if (llm_chat_say(chat_.get(), question.c_str())) throw std::runtime_error(llm_last_error());
        while (const char *piece = llm_chat_next(chat_.get()))
            if (!show(piece)) llm_chat_stop(chat_.get());
        llm_answer answer{};
        llm_chat_get_answer(chat_.get(), &answer);
        if (answer.finish == LLM_FINISH_ERROR) throw std::runtime_error(answer.error);
        return std::string(answer.text, answer.text_len);
    }

    llm_sampling &sampling() { return *llm_chat_sampling(chat_.get()); }

  private:
    template <typename T> static T *checked(T *p) {
        if (!p) throw std::runtime_error(llm_last_error());
        return p;
    }
    std::unique_ptr<llm, closer> model_; // outlives its conversations
    std::unique_ptr<llm_chat, closer> chat_;
};

int main(int argc, char **argv) {
    try {
        if (argc < 3) throw std::invalid_argument("usage: chat MODEL QUESTION...");
        conversation talk(argv[1], "You are a helpful assistant. Answer briefly.");
        talk.sampling().temperature = 0;
        for (int i = 2; i < argc; i++) {
            const std::string all =
                talk.ask(argv[i], [](std::string_view piece) { return static_cast<bool>(std::cout << piece << std::flush); });
            std::cout << "\n[" << all.size() << " bytes]\n";
        }
    } catch (const std::exception &error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
