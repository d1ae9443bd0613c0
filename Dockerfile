# llm_serve for the CPU in a small image. Build and run:
#   docker build -t llm_serve .
#   docker run -p 8180:8180 -v "$PWD/models:/models:ro" llm_serve
# The first model in /models is served; options may follow the image's name: --model /models/NAME.gguf --api-key-file FILE
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev libjsmn-dev libstb-dev make && rm -rf /var/lib/apt/lists/*
WORKDIR /llm
COPY Makefile llm.h llm_cli.c llm_serve.c ./
RUN make llm_cli llm_serve

FROM debian:bookworm-slim
COPY --from=build /llm/llm_cli /llm/llm_serve /usr/local/bin/
WORKDIR /
USER 10001:10001
EXPOSE 8180
# 200 when the model is loaded; 503 before, and while the server ends.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5m --retries=3 CMD ["bash", "-c", \
    "exec 3<>/dev/tcp/127.0.0.1/8180 && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ]"]
ENTRYPOINT ["llm_serve", "--host", "0.0.0.0", "--port", "8180"]
