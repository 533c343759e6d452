// The treatment of each flag of Megatron-LM's arguments.py (core 0.16), of older flags that scripts
// still have, and of MindSpeed's. The only list: the parser, docs/megatron_flags.md and tests read
// it.
#include "cli/compatibility/megatron_flags.h"

namespace piton::cli {
namespace {

using enum MegatronKind;

constexpr MegatronGroup kMegatronFlags[] = {
    {kWorks,
     "add-qkv-bias add-dense-bias embed-layernorm apply-layernorm-1p window-attn-skip-freq:1 "
     "qk-layernorm num-layers:1 hidden-size:1 ffn-hidden-size:1 num-attention-heads:1 "
     "kv-channels:1 "
     "num-query-groups:1 num-experts:1 moe-ffn-hidden-size:1 moe-router-topk:1 "
     "moe-router-pre-softmax moe-router-load-balancing-type:1 moe-aux-loss-coeff:1 "
     "moe-z-loss-coeff:1 moe-expert-capacity-factor:1 moe-token-drop-policy:1 "
     "moe-pad-expert-input-to-capacity moe-use-upcycling moe-upcycling-granularity:1 "
     "mtp-num-layers:1 mtp-loss-scaling-factor:1 "
     "moe-router-score-function:1 moe-router-enable-expert-bias moe-router-bias-update-rate:1 "
     "moe-router-num-groups:1 moe-router-group-topk:1 moe-router-topk-scaling-factor:1 "
     "norm-topk-prob "
     "moe-apply-probs-on-input moe-router-force-load-balancing "
     "moe-layer-freq:1 moe-shared-expert-intermediate-size:1 multi-latent-attention rope-type:1 "
     "is-hybrid-model hybrid-attention-ratio:1 hybrid-mlp-ratio:1 "
     "hybrid-override-pattern:1 hybrid-layer-pattern:1 mamba-state-dim:1 mamba-d-state:1 "
     "mamba-head-dim:1 mamba-headdim:1 mamba-num-groups:1 mamba-ngroups:1 mamba-num-heads:1 "
     "mamba-d-conv:1 attention-output-gate linear-attention-freq:1 linear-num-key-heads:1 "
     "linear-num-value-heads:1 linear-key-head-dim:1 linear-value-head-dim:1 "
     "linear-conv-kernel-dim:1 "
     "q-lora-rank:1 kv-lora-rank:1 qk-head-dim:1 qk-pos-emb-head-dim:1 v-head-dim:1 mscale:1 "
     "mscale-all-dim:1 multi-head-latent-attention qk-rope-head-dim:1 qk-nope-head-dim:1 "
     "max-position-embeddings:1 position-embedding-type:1 rotary-base:1 "
     "rotary-percent:1 rotary-interleaved no-rope-freq:1 rotary-scaling-factor:1 "
     "rotary-seq-len-interpolation-factor:1 use-rope-scaling "
     "rope-scaling-factor:1 rope-scaling-mscale:1 rope-scaling-mscale-all-dim:1 "
     "rope-scaling-beta-fast:1 rope-scaling-beta-slow:1 beta-fast:1 beta-slow:1 "
     "rope-scaling-original-max-position-embeddings:1 make-vocab-size-divisible-by:1 "
     "normalization:1 norm-epsilon:1 swiglu "
     "squared-relu quick-geglu geglu gelu-tanh activation-func-clamp-value:1 glu-linear-offset:1 "
     "softmax-type:1 "
     "untie-embeddings-and-output-weights disable-bias-linear attention-dropout:1 "
     "hidden-dropout:1 weight-decay:1 clip-grad:1 adam-beta1:1 adam-beta2:1 adam-eps:1 "
     "exp-avg-dtype:1 exp-avg-sq-dtype:1 "
     "sgd-momentum:1 muon-momentum:1 muon-use-nesterov muon-scale-mode:1 muon-num-ns-steps:1 "
     "muon-extra-scale-factor:1 micro-batch-size:1 global-batch-size:1 recompute-granularity:1 "
     "recompute-method:1 "
     "recompute-num-layers:1 recompute-modules:* recomputation-layer-num:* recompute-norm "
     "recompute-norm-num-layers:1 recompute-activation-function "
     "recompute-activation-function-num-layers:1 distribute-saved-activations "
     "distribute-checkpointed-activations partition-activations auto-recompute-device-size:1 "
     "adaptive-recompute-device-size:1 cpu-offloading-num-layers:1 train-iters:1 "
     "train-samples:1 lr-decay-samples:1 lr-warmup-samples:1 lr-decay-tokens:1 lr-warmup-tokens:1 "
     "lr-wsd-decay-style:1 "
     "lr-wsd-decay-samples:1 lr-wsd-decay-iters:1 "
     "iterations-to-skip:* full-validation multiple-validation-sets "
     "check-weight-hash-across-dp-replicas-interval:1 "
     "log-interval:1 log-params-norm log-num-zeros-in-grad exit-interval:1 exit-duration-in-mins:1 "
     "no-bias-gelu-fusion use-flash-attn "
     "optimizer:1 "
     "dataloader-type:1 sequence-parallel seed:1 init-method-std:1 embedding-init-method-std:1 "
     "init-method-xavier-uniform lr:1 decoupled-lr:1 decoupled-min-lr:1 lr-warmup-init:1 "
     "lr-decay-style:1 "
     "lr-decay-iters:1 lr-warmup-fraction:1 lr-warmup-iters:1 min-lr:1 save:1 save-interval:1 "
     "save-retain-interval:1 load:1 pretrained-checkpoint:1 no-save-optim no-load-optim "
     "ckpt-step:1 skip-train finetune "
     "bf16 fp16 fp8-format:1 fp8-recipe:1 first-last-layers-bf16 num-layers-at-start-in-bf16:1 "
     "num-layers-at-end-in-bf16:1 loss-scale:1 "
     "initial-loss-scale:1 "
     "min-loss-scale:1 "
     "loss-scale-window:1 hysteresis:1 start-weight-decay:1 end-weight-decay:1 "
     "weight-decay-incr-style:1 rampup-batch-size:* tensor-model-parallel-size:1 "
     "context-parallel-size:1 cp-comm-type:* hierarchical-context-parallel-sizes:* "
     "expert-model-parallel-size:1 moe-token-dispatcher-type:1 "
     "num-distributed-optimizer-instances:1 "
     "pipeline-model-parallel-size:1 num-layers-per-virtual-pipeline-stage:1 "
     "num-virtual-stages-per-pipeline-rank:1 microbatch-group-size-per-virtual-pipeline-stage:1 "
     "optimized-pipeline manual-mbs:* fold-mode:1 foldx-mode:1 use-manual-layer-allocation "
     "manual-layers:1 enable-recompute-layers-per-pp-rank no-scatter-gather-tensors-in-pipeline "
     "use-distributed-optimizer eval-iters:1 eval-interval:1 "
     "vocab-size:1 padded-vocab-size:1 vocab-file:1 merge-file:1 vocab-extra-ids:1 "
     "tokenizer-type:1 tokenizer-model:1 data-path:* split:1 train-data-path:* valid-data-path:* "
     "test-data-path:* data-cache-path:1 mock-data seq-length:1 encoder-seq-length:1 "
     "reset-position-ids is-instruction-dataset neat-pack no-shuffle padded-samples "
     "full-shuffle-instruction-dataset variable-seq-lengths pad-to-multiple-of:1 lora-r:1 "
     "lora-alpha:1 lora-load:1 lora-target-modules:* lora-modules-to-save:* lora-adapter-name:1 "
     "qlora "
     "reset-attention-mask eod-mask-loss override-opt_param-scheduler override-opt-param-scheduler "
     "use-checkpoint-opt_param-scheduler use-checkpoint-opt-param-scheduler "
     "distributed-timeout-minutes:1 tensorboard-dir:1 async-save timing-log-level:1 "
     "timing-log-option:1 log-timers-to-tensorboard profile profile-step-start:1 "
     "profile-step-end:1 profile-ranks:* remote-device:1 cpu-optimizer "
     "apply-residual-connection-post-layernorm bert-no-binary-head mask-prob:1 short-seq-prob:1 "
     "decoder-seq-length:1 encoder-num-layers:1 decoder-num-layers:1 "
     "pipeline-model-parallel-split-rank:1 "
     "relative-attention-num-buckets:1 relative-attention-max-distance:1 "
     "fp32-residual-connection no-load-lr-state exit-on-missing-checkpoint",
     ""},
    // Older and alternative spellings.
    {kMeans, "use-rotary-position-embeddings", "--position-embedding-type rope"},
    {kMeans, "checkpoint-activations", "--recompute-granularity full"},
    {kMeans, "openai-gelu", "--activation gelu"},
    {kMeans, "recompute-activations", "--recompute-granularity selective"},
    {kMeans, "checkpoint-policy:1", "--recompute-granularity full --recompute-method"},
    {kMeans, "checkpoint-num-layers:1 checkpoint-block-layer:1", "--recompute-num-layers"},

    {kMeans, "optimizer-cpu-offload", "--cpu-optimizer"},
    {kMeans, "persistent-save-interval:1", "--save-interval"},
    {kMeans, "model-parallel-size:1", "--tensor-model-parallel-size"},
    {kMeans, "batch-size:1", "--micro-batch-size"},
    {kMeans, "warmup:1", "--lr-warmup-fraction"},
    // MindSpeed's.
    {kMeans,
     "context-parallel-algo:1=megatron_cp_algo>p2p|ulysses_cp_algo>a2a|hybrid_cp_algo>a2a+p2p|"
     "kvallgather_cp_algo>allgather",
     "--cp-comm-type"},
    {kMeans, "ulysses-degree-in-cp:1", "--hierarchical-context-parallel-sizes"},
    {kMeans, "num-layer-list:1", "--use-manual-layer-allocation --manual-layers"},
    {kMeans, "rope-scaling-type:1=llama3>llama3|yarn>yarn|longrope>longrope",
     "--rotary-scaling-type"},
    {kMeans, "long-factor:1", "--rotary-long-factors"},
    {kMeans, "short-factor:1", "--rotary-short-factors"},
    {kMeans, "use-glm-rope", "--rotary-interleaved"},
    {kMeans, "sliding-window:1", "--pre-tockens"},
    {kMeans, "scale-emb:1 embedding-multiplier-scale:1", "--embedding-multiplier"},
    {kMeans, "add-output-layer-bias", "--add-head-bias"},
    {kMeans, "schedules-method:1=dualpipev>dualpipe-v", "--pipeline-schedule"},

    {kRead, "deepspeed deepspeed_config:1",
     "the configuration becomes options: --zero-stage, sizes of batches, types, the optimizer"},
    {kRead,
     "noop-layers:1 decoder-first-pipeline-num-layers:1 decoder-last-pipeline-num-layers:1 "
     "account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split",
     "--num-layers and --manual-layers: layers that do nothing, of the first and the last stage, "
     "and the embedding and the head counted as layers"},
    {kRead, "pipeline-model-parallel-layout:1",
     "--manual-layers and --num-virtual-stages-per-pipeline-rank: Et|tt|tL are chunks of 1, 2 and "
     "1 "
     "layers"},
    {kRead, "dim-model-base:1 output-multiplier-scale:1 scale-depth:1",
     "--logits-scaling, --residual-multiplier: hidden / D, one over the factor, S / sqrt(layers)"},
    {kRead, "n-group:1 topk-group:1 routed-scaling-factor:1 seq-aux",
     "--moe-router-num-groups, --moe-router-group-topk, --moe-router-topk-scaling-factor, and "
     "seq_aux_loss of --moe-router-load-balancing-type"},
    {kRead, "spec:*",
     "modules of MindSpeed-LLM whose layers other flags describe: qwen3_spec, deepseek_spec, "
     "minicpm_spec, gemma2_spec, grok_spec; others are refused"},
    {kRead, "window-size:1", "--pre-tockens: (L, 0) are L earlier keys, (-1, -1) all"},
    {kRead, "no-pipeline-parallel", "--pipeline-model-parallel-size is 1, or it is refused"},

    // For GPUs, PyTorch or Python only.
    {kIgnored,
     "transformer-impl:1 attention-backend:1 muon-fp32-matmul-prec:1 "
     "no-masked-softmax-fusion no-bias-swiglu-fusion "
     "no-bias-dropout-fusion no-rope-fusion no-persist-layer-norm no-gradient-accumulation-fusion "
     "no-gradient-reduce-div-fusion cross-entropy-loss-fusion cross-entropy-fusion-impl:1 "
     "use-te-activation-func te-rng-tracker inference-rng-tracker use-mcore-models "
     "use-legacy-models use-fused-rmsnorm use-fused-rotary-pos-emb use-fused-weighted-squared-relu "
     "jit-compile mlp-layer-fusion use-fused-swiglu disable-bf16-reduced-precision-matmul "
     "defer-embedding-wgrad-compute "
     "wgrad-deferral-limit:1 delay-wgrad-compute flash-decode use-fusion-attn-v2 "
     "use-fused-ring-attention-update gemm-gradient-accumulation-fusion "
     "use-fused-rotary-pos-emb-new use-fused-mlp mla-fa-without-pad mla-mm-split "
     "mla-fa-divide-qk padded-base-length:1 skip-bias-add",
     "kernels are chosen by the processor (PITON_ISA)"},
    {kIgnored, "cache-mla-latents", "caches hold latents where the kernels attend to them"},
    {kIgnored, "shape-order:1 megatron-cp-in-bnsd",
     "attention has the same results in every order of dims; piton bench attention measures them"},
    {kIgnored,
     "enable-cuda-graph cuda-graph-warmup-steps:1 external-cuda-graph cuda-graph-impl:1 "
     "cuda-graph-scope:1",
     "steps on one GPU are CUDA graphs with or without them; --no-cuda-graph launches each kernel"},
    {kIgnored,
     "manual-gc manual-gc-interval:1 no-manual-gc-eval "
     "empty-unused-memory-level:1 record-memory-history memory-snapshot-path:1 "
     "train-sync-interval:1 no-clone-scatter-output-in-embedding lazy-mpu-init:1 onnx-safe:1 "
     "init-model-with-meta-device no-pin-cpu-grads no-pin-cpu-params disable-msc "
     "enable-experimental",
     "there is no PyTorch and no Python under it"},
    {kIgnored,
     "distributed-backend:1 DDP-impl:1 local-rank:1 use-tp-pp-dp-mapping "
     "disable-gloo-process-groups disable-gloo-group "
     "nccl-communicator-config-path:1 high-priority-stream-groups:* use-nccl-ub "
     "disable-symmetric-registration use-sharp sharp-enabled-group:1 "
     "pipeline-model-parallel-comm-backend:1 tp-comm-bootstrap-backend:1 use-ring-exchange-p2p "
     "distributed-timeout-seconds-after-init:1 hccl-group-buffer:1",
     "ranks share memory, or talk through sockets or MPI (piton launch starts them)"},
    {kIgnored,
     "overlap-grad-reduce overlap-param-gather overlap-param-gather-with-optimizer-step "
     "no-align-grad-reduce no-align-param-gather ddp-num-buckets:1 ddp-bucket-size:1 "
     "ddp-pad-buckets-for-high-nccl-busbw ddp-average-in-collective "
     "ddp-reduce-scatter-with-fp32-accumulation no-overlap-p2p-communication "
     "overlap-p2p-communication-warmup-flush "
     "no-async-tensor-model-parallel-allreduce tp-comm-overlap tp-comm-overlap-cfg:1 "
     "disable-tp-comm-overlap-ag disable-tp-comm-overlap-rs tp-comm-overlap-rs-dgrad "
     "disable-tp-comm-bulk-dgrad disable-tp-comm-bulk-wgrad disable-tp-comm-split-ag "
     "disable-tp-comm-split-rs use-mc2 use-ascend-mc2 use-cp-send-recv-overlap "
     "async-log-allreduce cp-window-size:1 enable-overlap-ag-with-matmul "
     "enable-overlap-matmul-with-rs enable-backward-overlap-ag-with-matmul",
     "communication overlaps with work where it can (--num-slices cuts linears and heads for it)"},
    {kIgnored,
     "moe-grouped-gemm moe-use-legacy-grouped-gemm moe-extended-tp moe-router-fusion "
     "moe-enable-deepep moe-deepep-num-sms:1 moe-permute-fusion "
     "overlap-moe-expert-parallel-comm "
     "moe-pad-experts-for-cuda-graph-inference moe-permutation-async-comm "
     "use-fused-moe-token-permute-and-unpermute moe-alltoall-overlap-comm "
     "moe-allgather-overlap-comm moe-fb-overlap moe-tp-extend-ep moe-zero-memory:1 "
     "moe-zero-memory-num-layers:1 moe-hierarchical-alltoallv moe-experts-pipeline-degree:1 "
     "moe-unperm2-mem-optim moe-unperm2-mem-optim-swap moe-bmm-mc2 enable-token-rearrange-opt",
     "rows of tokens are sorted by expert, and one call computes all experts of a layer"},
    {kIgnored, "moe-shared-expert-overlap",
     "the MLP that all tokens share is computed while they travel to experts on other ranks and "
     "back"},
    {kIgnored, "moe-flex-dispatcher-backend:1",
     "flex of --moe-token-dispatcher-type sends rows by the transport that joins all ranks"},
    {kIgnored, "output-layer-slice-num:1 mtp-mem-efficient-logits",
     "logits are computed for slices of the rows, and not kept"},
    {kIgnored, "kv-head-repeat-before-uly-alltoall",
     "heads share keys on every layout; --num-query-groups says how many"},
    {kIgnored, "tp-2d tp-x:1 tp-y:1",
     "--tensor-model-parallel-size divides each matrix one way, with the same results"},
    {kIgnored, "swap-attention swap-modules:1 adaptive-recompute-device-swap",
     "what layers keep stays in memory; --offload-activations FOLDER --cpu-offloading-num-layers N "
     "moves it to a file"},
    {kIgnored, "swap-optimizer swap-optimizer-times:1",
     "the optimizer's state stays in memory; --remote-device FOLDER keeps it in a file"},
    {kIgnored, "attention-mask-on-cpu", "masks are computed with the scores, and not stored"},
    {kIgnored, "no-pad-to-seq-lengths",
     "padding has no loss; --variable-seq-lengths leaves it out"},
    {kIgnored, "enable-hf2mg-convert model-type-hf:1",
     "--load reads folders of Hugging Face as they are"},
    {kIgnored, "load-checkpoint-loosely",
     "files have to fit the model; a reward model starts from one that predicts tokens too"},
    {kIgnored, "workers:1", "corpora are read as they are; `piton preprocess` has --workers"},
    {kIgnored, "use-nanopipe use-nanopipe-swap",
     "--pipeline-schedule has the orders of passes, with the same results"},
    {kIgnored, "moe-per-layer-logging",
     "load_balancing_loss in the metrics is the mean over all layers"},
    {kIgnored, "auto-recompute-profiling-step:1 adaptive-recompute-profiling-step:1",
     "--recompute-granularity auto plans and measures before the first step"},
    {kIgnored, "use-ascend-coc",
     "--coc-parallel-num (--num-slices) and --coc-fused-kernel (--fused-linears) have effect "
     "without it"},
    {kIgnored, "matmul-soc-friendly",
     "products pack both matrices into aligned panels, padded by zeros"},
    {kIgnored, "reuse-fp32-param",
     "weights of 16 bits and their fp32 copies are both held; --use-distributed-optimizer shards "
     "the copies over data-parallel ranks"},
    {kIgnored, "release-fp32-grad",
     "sums of gradients are kept in fp32; --zero-stage 2 shards them over data-parallel ranks"},
    {kIgnored, "use-pin-memory",
     "--remote-device and --cpu-optimizer say where the state is; its memory is ordinary"},
    {kIgnored, "deepspeed-activation-checkpointing",
     "--recompute-granularity full computes layers again, without DeepSpeed"},
    {kIgnored, "use-checkpoint-args use-mp-args-from-checkpoint-args",
     "a checkpoint loads into any layout; sizes that flags do not give are read from it, and "
     "others are refused"},
    {kIgnored, "no-use-tokenizer-model-from-checkpoint-args",
     "the tokenizer that flags name is taken, and compared with the checkpoint's"},
    {kIgnored,
     "num-workers:1 no-mmap-bin-files mmap-warmup no-create-attention-mask-in-dataloader "
     "num-dataset-builder-threads:1 object-storage-cache-path:1 no-shared-storage "
     "trust-remote-code "
     "legacy-tokenizer tokenizer-metadata:1 allow-ambiguous-pad-tokens",
     "one thread reads a corpus, by calls of the system"},
    {kIgnored,
     "tensorboard-log-interval:1 tensorboard-queue-size:1 "
     "no-log-loss-scale-to-tensorboard log-batch-size-to-tensorboard "
     "log-memory-to-tensorboard log-world-size-to-tensorboard wandb-project:1 wandb-entity:1 "
     "wandb-exp-name:1 wandb-save-dir:1 one-logger-project:1 one-logger-run-name:1 no-one-logger "
     "one-logger-async app-tag-run-name:1 app-tag-run-version:1 config-logger-dir:1 "
     "log-straggler disable-straggler-on-startup straggler-ctrlr-port:1 straggler-minmax-count:1 "
     "no-barrier-with-level-1-timing logging-level:1 log-progress log-energy "
     "use-pytorch-profiler run-workload-inspector-server dump-param-to-param-group-map:1",
     "figures of every step are in metrics.jsonl and tensorboard/ of --save, and `piton bench "
     "train` profiles"},
    {kIgnored,
     "profile-level:1 profile-with-cpu profile-with-stack profile-with-memory "
     "profile-record-shapes profile-save-path:1 profile-export-type:1 "
     "profile-data-simplification",
     "--profile writes one kind of trace, to the file of --trace"},
    {kIgnored,
     "ckpt-format:1 use-dist-ckpt dist-ckpt-format:1 auto-detect-ckpt-format "
     "ckpt-fully-parallel-save no-ckpt-fully-parallel-save ckpt-fully-parallel-load "
     "use-persistent-ckpt-worker ckpt-assume-constant-structure dist-ckpt-strictness:1 "
     "dist-ckpt-save-pre-mcore-014 dist-ckpt-optim-fully-reshardable "
     "distrib-optim-fully-reshardable-mem-efficient no-strict-fsdp-dtensor-load no-save-rng "
     "no-load-rng no-initialization load-main-params-from-ckpt",
     "checkpoints have one format, hold no state of random numbers, and are read by every layout"},
    {kIgnored,
     "adlr-autoresume adlr-autoresume-interval:1 rerun-mode:1 error-injection-rate:1 "
     "error-injection-type:1 enable-ft-package calc-ft-timeouts inprocess-restart "
     "inprocess-max-iterations:1 inprocess-monitor-thread-interval:1 "
     "inprocess-monitor-process-interval:1 inprocess-progress-watchdog-interval:1 "
     "inprocess-heartbeat-interval:1 inprocess-soft-timeout:1 inprocess-hard-timeout:1 "
     "inprocess-heartbeat-timeout:1 inprocess-barrier-timeout:1 "
     "inprocess-completion-timeout:1 inprocess-last-call-wait:1 "
     "inprocess-termination-grace-time:1 inprocess-granularity:1 "
     "inprocess-active-world-size:1 inprocess-empty-cuda-cache "
     "result-rejected-tracker-filename:1 enable-high-availability "
     "enable-optimizer-state-local-copy enable-hbmfault-repair",
     "a rank that fails ends the run, and the same command continues"},

    // Fixed properties, or flags that accept only these values.
    {kIgnored, "grad-reduce-in-bf16",
     "gradients are summed over ranks in fp32, which is a higher precision"},
    {kIgnored, "fp16-lm-cross-entropy",
     "the loss is computed in fp32, which is a higher precision"},
    {kIgnored, "no-contiguous-buffers-in-local-ddp",
     "gradients are in buckets, which are reduced during backward"},
    {kSame, "exit-signal-handler", "SIGTERM always saves and ends"},
    {kSame, "log-throughput op-cal-tflops", "the log line always has it"},
    {kSame, "log-validation-ppl-to-tensorboard",
     "each evaluation writes its loss and perplexity to the log and to tensorboard/ of --save"},
    {kSame, "attention-softmax-in-fp32 accumulate-allreduce-grads-in-fp32",
     "softmax and sums of gradients are in fp32 (docs/numerics.md)"},
    {kSame, "use-cpu-initialization deterministic-mode use-deter-comp npu-deterministic",
     "weights do not depend on the layout, and equal runs give equal bits"},
    {kSame, "calculate-per-token-loss", "the loss is divided by the tokens of the whole batch"},
    {kSame, "no-check-for-nan-in-loss-and-grad",
     "an update without finite gradients is skipped and counted"},
    {kSame, "square-alibi-mask fill-neg-inf",
     "attention is causal under ALiBi too, whatever the form of its mask"},
    {kSame, "apply-query-key-layer-scaling no-query-key-layer-scaling",
     "the factor cancels; scores and softmax are in fp32, where it would help nothing"},
    {kSame, "group-query-attention", "heads share keys if --num-query-groups says how many"},
    {kSame, "no-position-embedding", "there is no table of positions under rotary ones"},
    {kSame, "dataset-impl:1=mmap|infer", "corpora are of this form"},
    {kSame, "data-impl:1=mmap|infer|lazy|cached",
     "files are read as their heads say, which have to be those of mmap"},
    {kSame, "expert-tensor-parallel-size:1=1",
     "--tensor-model-parallel-size splits experts like the other layers"},
    {kSame, "muon-tp-mode:1=duplicated|distributed",
     "Muon updates whole matrices, however many tensor ranks share them"},
    {kSame, "use-precision-aware-optimizer main-grads-dtype:1=fp32 main-params-dtype:1=fp32",
     "main copies and gradients are fp32; --exp-avg-dtype and --exp-avg-sq-dtype choose the types "
     "of moments"},
    {kSame, "attention-mask-type:1=causal|general cp-attention-mask-type:1=causal|general",
     "attention is causal, however the mask is given; --sparse-mode has other masks"},
    {kSame, "longrope-freqs-type:1=mul|outer", "both have the same angles"},
    {kSame, "moe-model-type:1=megatron_moe", "experts are those of Megatron-core"},
    {kSame, "moe-device-level-aux-loss-coeff:1=0|0.0 moe-comm-aux-loss-coeff:1=0|0.0",
     "the balance in the loss is of experts (--moe-aux-loss-coeff)"},
    {kSame, "low-freq-factor:1=1|1.0 high-freq-factor:1=4|4.0",
     "those of --rotary-scaling-type llama3"},
    {kSame, "experimental-attention-variant:1=gated_delta_net",
     "--linear-attention-freq says which layers have it"},
    {kSame, "tokenizer-padding-side:1=right", "what is padded is padded at the end"},
    {kSame, "moe-router-dtype:1=fp32 router-gating-in-fp32", "logits of the router are fp32"},
    {kSame, "moe-input-jitter-eps:1=0|0.0 input-jitter", "the inputs of routers have no jitter"},
    {kSame, "data-parallel-sharding-strategy:1=no_shard", "--zero-stage shards"},
    {kSame, "sample-rate:1=1|1.0 mid-level-dataset-surplus:1=0.005", "as Megatron-core has it"},

    // Planned, or for models that are not trained here.
    {kNotYet, "data-parallel-random-init", "all data-parallel ranks hold the same weights"},
    {kNotYet, "decrease-batch-size-if-needed",
     "--global-batch-size is a multiple of --micro-batch-size x data-parallel ranks"},
    {kNotYet, "check-for-spiky-loss check-for-large-grads",
     "--skip-spikes leaves out updates with an unusual loss or norm; those without finite "
     "gradients are always skipped"},
    {kNotYet, "test-mode", "it is for the tests of Megatron-LM"},
    {kNotYet,
     "non-persistent-save-interval:1 non-persistent-ckpt-type:1 non-persistent-global-ckpt-dir:1 "
     "non-persistent-local-ckpt-dir:1 non-persistent-local-ckpt-algo:1 replication "
     "replication-jump:1 replication-factor:1",
     "all checkpoints are whole and in --save; --async-save writes them while training continues"},
    {kNotYet,
     "ckpt-convert-format:1 ckpt-convert-save:1 ckpt-convert-update-legacy-dist-opt-format",
     "`piton convert` converts checkpoints"},
    {kNotYet, "reuse-grad-buf-for-mxfp8-param-ag",
     "docs/numerics.md says what each sum is taken in"},
    {kNotYet,
     "fp8-quantizer-factory:1 fp8-margin:1 fp8-interval:1 fp8-amax-history-len:1 "
     "fp8-amax-compute-algo:1 no-fp8-wgrad fp8-param-gather keep-fp8-transpose-cache "
     "kitchen-config-file:1 kitchen-recipe-number:1",
     "--fp8-recipe tensorwise and blockwise have scales of the numbers themselves, for all three "
     "products of a linear; weights stay in bf16"},
    {kNotYet, "fp4-format:1 fp4-recipe:1 fp4-quantizer-factory:1 fp4-param-gather",
     "--fp8-format has the shortest types"},
    {kNotYet,
     "optimizer-offload-fraction:1 "
     "use-torch-optimizer-for-cpu-offload overlap-cpu-optimizer-d2h-h2d",
     "--remote-device keeps all of it in a file"},
    {kNotYet, "o2-optimizer o2-gradient",
     "sums of gradients and the optimizer's state are fp32; --zero-stage shards them"},
    {kNotYet, "unaligned-linear pipeline-num-transformer-layers:1",
     "tensor ranks have equal parts; --use-manual-layer-allocation --manual-layers N,N divides "
     "layers"},
    {kNotYet, "reward-tokens:* placeholder-token:1",
     "--stage rm learns from pairs of answers, not from judged steps"},
    {kNotYet, "train-tokens:1", "--train-samples or --train-iters is the length of a run"},
    {kNotYet, "z-loss-weight:1 lm-norm-weight:1",
     "--normalized-head divides rows of the head by their length; losses of logits are not here"},
    {kNotYet, "recompute-in-bubble recompute-in-advance",
     "they fill the idle time of interleaved stages; --recompute-num-layers N is of each chunk"},
    {kNotYet,
     "use-megatron-fsdp fsdp-double-buffer suggested-communication-unit-size:1 "
     "enable-full-sharding-in-hsdp use-torch-fsdp2 torch-fsdp2-no-reshard-after-forward",
     "--zero-stage 1, 2 or 3 shards over data-parallel ranks"},
    {kNotYet,
     "mrope-section:* "
     "qk-l2-norm heterogeneous-layers-config-path:1 "
     "heterogeneous-layers-config-encoded-json:1  disable-mamba-mem-eff-path "
     "interleave-sliding-window:1 input-layernorm-in-fp32 enable-dsa-indexer index-topk:1 "
     "index-n-heads:1 index-head-dim:1 use-fused-lightning-indexer "
     "use-fused-lightning-indexer-loss use-sparse-flash-attn enable-mhc hc-mult:1 kv-compress "
     "o-lora-rank:1 o-groups:1 use-g2-attention g2-window-size:1 compress-ratios:* "
     "compress-rope-theta:1 n-hash-layers:1 mtp-spec:* long-mscale:1 short-mscale:1",
     "the model would be another one"},
    {kNotYet, "moe-layer-recompute", "--recompute-granularity selective or full recomputes layers"},
    {kNotYet, "moe-router-padding-for-fp8", "the products of experts are in bf16"},
    {kNotYet, "muon-no-split-qkv", "Muon updates query, key and value each as a matrix"},
    {kNotYet, "data-args-path:1 per-split-data-args-path:1 yaml-cfg:1",
     "corpora are named by --data-path, options in TOML by --config"},
    {kNotYet,
     "tiktoken-pattern:1 tiktoken-num-special-tokens:1 tiktoken-special-tokens:* "
     "tokenizer-kwargs:*",
     "a tokenizer is read from its files; one that is not TikTokenizer needs none of these"},
    {kIgnored, "lora-register-forward-hook:*", "gradients pass through frozen layers without it"},
    {kIgnored, "lora-fusion", "products of adapters are always computed during collectives"},
    {kIgnored, "lora-ckpt-filter qlora-save-dequantize", "checkpoints of adapters hold them alone"},
    {kNotYet, "sft sft-tokenizer-prompt-format:1",
     "`piton finetune --data-path FILE` trains on conversations, in the chat template of the model "
     "or that of --prompt-type"},
    {kNotYet,
     "perform-rl-step rl-prompts-per-eval:1 grpo-prompts-per-step:1 grpo-group-size:1 "
     "grpo-iterations:1 grpo-clamp-eps-lower:1 grpo-clamp-eps-upper:1 grpo-kl-beta:1 "
     "grpo-entropy-term-weight:1 grpo-filter-groups-with-same-reward "
     "grpo-default-temperature:1 grpo-default-top-p:1 langrl-inference-server-type:1 "
     "langrl-inference-server-conversation-template:1 langrl-external-server "
     "no-langrl-external-server langrl-env-config:1 rl-offload-optimizer-during-inference "
     "rl-offload-kv-cache-during-training rl-remove-kv-cache-during-training "
     "rl-reset-cuda-graphs rl-partial-rollouts rl-inference-logprobs-is-correction "
     "rl-importance-sampling-truncation-coef:1 rl-calculate-intra-group-similarity "
     "rl-use-sequence-packing rl-sequence-packing-bin-size:1 rl-sequence-packing-algo:1",
     "`piton finetune --stage grpo` learns from rewards of answers: --num-generations, "
     "--num-iterations, --grpo-epsilon, --grpo-epsilon-high, --grpo-beta"},
    {kNotYet, "dataset-additional-keys:*",
     "`piton finetune --stage grpo` reads questions from their records, with all keys"},
    {kNotYet,
     "inference-batch-times-seqlen-threshold:1 max-tokens-to-oom:1 "
     "use-legacy-static-engine inference-max-requests:1 inference-max-seq-length:1 "
     "inference-max-batch-size:1 inference-dynamic-batching "
     "inference-dynamic-batching-buffer-size-gb:1 inference-dynamic-batching-block-size:1 "
     "inference-dynamic-batching-buffer-guaranteed-fraction:1 "
     "inference-dynamic-batching-buffer-overflow-factor:1 "
     "inference-dynamic-batching-max-requests-override:1 "
     "inference-dynamic-batching-max-tokens-override:1 "
     "inference-dynamic-batching-num-cuda-graphs:1 "
     "inference-dynamic-batching-track-paused-request-events decode-only-cuda-graphs "
     "inference-dynamic-batching-unified-memory-level:1 symmetric-ar-type:1 "
     "nccl-all-reduce-for-prefill mlp-chunks-for-prefill:1 disable-chunked-prefill "
     "inference-wandb-logging-step-interval:1",
     "`piton serve` has other limits: `--max-concurrent-requests`"},
    {kNotYet,
     "output-bert-embeddings bert-embedder-type:1 "
     "retriever-seq-length:1 ict-head-size:1 biencoder-projection-dim:1 "
     "biencoder-shared-query-context-model ict-load:1 bert-load:1 titles-data-path:1 "
     "query-in-block-prob:1 use-one-sent-docs evidence-data-path:1 "
     "retriever-report-topk-accuracies:* retriever-score-scaling block-data-path:1 "
     "embedding-path:1 indexer-batch-size:1 indexer-log-interval:1 retro-project-dir:1 "
     "retro-add-retriever retro-cyclic-train-iters:1 retro-encoder-layers:1 "
     "retro-encoder-hidden-dropout:1 retro-encoder-attention-dropout:1 "
     "retro-num-neighbors:1 retro-num-retrieved-chunks:1 retro-attention-gate:1 "
     "retro-no-verify-neighbor-count",
     "decoders, BERT and T5 are trained here, not retrievers"},
    {kNotYet,
     "num-classes:1 img-h:1 img-w:1 num-channels:1 patch-dim:1 classes-fraction:1 "
     "data-per-class-fraction:1 no-data-sharding head-lr-mult:1 vision-pretraining "
     "vision-pretraining-type:1 vision-backbone-type:1 swin-backbone-type:1 mask-type:1 "
     "mask-factor:1 iter-per-epoch:1 dino-local-img-size:1 dino-local-crops-number:1 "
     "dino-head-hidden-size:1 dino-bottleneck-size:1 dino-freeze-last-layer:1 "
     "dino-norm-last-layer dino-warmup-teacher-temp:1 dino-teacher-temp:1 "
     "dino-warmup-teacher-temp-epochs:1",
     "decoders of text alone are trained here"},
};

}  // namespace

std::span<const MegatronGroup> megatron_table() { return kMegatronFlags; }

}  // namespace piton::cli
