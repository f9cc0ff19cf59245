# tests - TAP, through automake's driver
TEST_EXTENSIONS = .t
# results are the CPU's, also where there is a GPU: tests see none
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/%D%/timed $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
T_LOG_DRIVER = $(LOG_DRIVER)
T_LOG_COMPILER = $(SHELL)
AM_TESTS_ENVIRONMENT = \
    top_srcdir='$(abs_top_srcdir)'; export top_srcdir; \
    top_builddir='$(abs_top_builddir)'; export top_builddir; \
    PATH="$(abs_top_builddir)/bin:$$PATH"; export PATH; \
    LC_ALL=C.UTF-8; export LC_ALL; \
    CUDA_VISIBLE_DEVICES=; export CUDA_VISIBLE_DEVICES; \
    LSAN_OPTIONS='suppressions=$(abs_top_srcdir)/%D%/lsan.supp print_suppressions=0'; \
    export LSAN_OPTIONS;
test_libs = lib/libshardutils.a
CLEANFILES += test-times
EXTRA_DIST += %D%/README %D%/timed %D%/lib.sh %D%/machines.sh %D%/lsan.supp %D%/tap.h %D%/cpu-trial.h

# unit tests: unit-NAME.c; the longest first, so that none is left to run alone
unit_tests = \
    %D%/unit-cpu \
    %D%/unit-device \
    %D%/unit-engine \
    %D%/unit-gradient \
    %D%/unit-base \
    %D%/unit-boxes \
    %D%/unit-activation \
    %D%/unit-bubble \
    %D%/unit-choice \
    %D%/unit-ckpt \
    %D%/unit-comm \
    %D%/unit-data \
    %D%/unit-fuse \
    %D%/unit-types \
    %D%/unit-formats \
    %D%/unit-init \
    %D%/unit-keys \
    %D%/unit-measure \
    %D%/unit-model \
    %D%/unit-outdir \
    %D%/unit-packed \
    %D%/unit-resident \
    %D%/unit-partition \
    %D%/unit-pickle \
    %D%/unit-program \
    %D%/unit-pruner \
    %D%/unit-draft \
    %D%/unit-grammar \
    %D%/unit-sampling \
    %D%/unit-scan \
    %D%/unit-scheduler \
    %D%/unit-steps \
    %D%/unit-sequence \
    %D%/unit-http \
    %D%/unit-serve \
    %D%/unit-serving \
    %D%/unit-space \
    %D%/unit-tcp \
    %D%/unit-trainable \
    %D%/unit-verdict \
    %D%/unit-train
check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests)
tests_unit_base_LDADD = $(test_libs)
tests_unit_boxes_LDADD = $(test_libs)
tests_unit_activation_LDADD = $(test_libs)
tests_unit_scan_LDADD = $(test_libs)
tests_unit_bubble_LDADD = $(test_libs)
tests_unit_choice_LDADD = $(program_libs)
tests_unit_ckpt_LDADD = $(program_libs)
tests_unit_ckpt_SOURCES = %D%/unit-ckpt.c %D%/fuzz/seal.h
tests_unit_comm_SOURCES = %D%/unit-comm.c %D%/all-ranks.c %D%/all-ranks.h
tests_unit_comm_LDADD = $(test_libs)
tests_unit_cpu_LDADD = $(test_libs)
tests_unit_types_SOURCES = %D%/unit-types.c %D%/device-models.c %D%/device-models.h
tests_unit_types_LDADD = $(program_libs)
tests_unit_fuse_SOURCES = %D%/unit-fuse.c %D%/device-models.c %D%/device-models.h
tests_unit_fuse_LDADD = $(program_libs)
tests_unit_device_SOURCES = %D%/unit-device.c %D%/device-models.c %D%/device-models.h %D%/device-training.c %D%/device-training.h
tests_unit_data_LDADD = $(test_libs)
tests_unit_device_LDADD = $(program_libs)
tests_unit_device_LDFLAGS = -Wl,--wrap=mem_alloc,--wrap=free
tests_unit_engine_LDADD = $(program_libs)
tests_unit_formats_LDADD = $(test_libs) $(YAML_LIBS)
tests_unit_grammar_LDADD = $(test_libs)
tests_unit_gradient_LDADD = $(program_libs)
tests_unit_init_LDADD = $(program_libs)
tests_unit_partition_LDADD = $(test_libs)
tests_unit_keys_LDADD = $(test_libs)
tests_unit_measure_LDADD = $(test_libs)
tests_unit_model_LDADD = $(test_libs)
tests_unit_outdir_LDADD = $(test_libs)
tests_unit_packed_LDADD = $(test_libs)
tests_unit_pickle_LDADD = $(test_libs)
tests_unit_program_SOURCES = %D%/unit-program.c cmd/pp-partition/stages.c
tests_unit_program_LDADD = $(program_libs)
tests_unit_pruner_LDADD = $(test_libs)
tests_unit_sampling_LDADD = $(test_libs)
tests_unit_scheduler_LDADD = $(program_libs)
tests_unit_steps_SOURCES = %D%/unit-steps.c %D%/repeats.c %D%/repeats.h
tests_unit_steps_LDADD = $(program_libs)
tests_unit_scheduler_LDFLAGS = -Wl,--wrap=engine_step
tests_unit_draft_LDFLAGS = -Wl,--wrap=clock_seconds,--wrap=scheduler_counts
tests_unit_sequence_LDADD = $(program_libs)
tests_unit_serve_LDADD = $(test_libs) -lpthread
tests_unit_http_LDADD = $(test_libs) $(MICROHTTPD_LIBS) -lpthread
tests_unit_space_LDADD = $(test_libs) $(YAML_LIBS)
tests_unit_tcp_LDADD = $(test_libs)
tests_unit_train_LDADD = $(program_libs)

# The CUDA backend without a GPU: its kernels compiled as C++ (*.emo), over a runtime in the host's
# memory.  In front of the library, this one has its backends.
EMU_CXXFLAGS = -std=c++17 -fno-exceptions -ffp-contract=off -Wall -Wextra -Wno-unknown-pragmas
EMU_CPPFLAGS =
EXTRA_DIST += %D%/emu/barriers.sh %D%/emu/record
emu_sources = %D%/emu/emu.c %D%/emu/emu.h %D%/fake/cublaslt.c %D%/fake/cudart.c %D%/fake/cudart.h %D%/fake/nccl.c %D%/fake/include/cuda_runtime_api.h
gpu_emulated = $(gpu_kernels:.cu=.emo)
AM_V_EMU = $(am__v_EMU_@AM_V@)
am__v_EMU_ = $(am__v_EMU_@AM_DEFAULT_V@)
am__v_EMU_0 = @echo "  EMU     " $@;
am__v_EMU_1 =
.cu.emo:
	$(AM_V_EMU)$(MKDIR_P) $(@D) && $(CXX) $(EMU_CXXFLAGS) -DGPU_EMULATED=1 -I$(top_srcdir) $(HARDEN_CFLAGS) $(CXXFLAGS) \
	    -x c++ -c -o $@ $<
$(gpu_emulated): $(gpu_headers) $(shared_headers) %D%/emu/emu.h
fragments_sources = %D%/emu/fragments.cu %D%/emu/fragments.h
%D%/emu/fragments.emo %D%/emu/fragments.o: %D%/emu/fragments.h $(gpu_headers)
EXTRA_DIST += $(emu_sources) $(fragments_sources) %D%/device-gradients.c %D%/gpu-training.c %D%/gpu-models.c %D%/gpu-steps.c %D%/unit-gpu.c
if HAVE_CXX
check_LIBRARIES += %D%/libgpu-emu.a
tests_libgpu_emu_a_SOURCES = $(emu_sources) $(gpu_sources) $(room_sources) lib/run/backends.c
tests_libgpu_emu_a_CPPFLAGS = -DHAVE_CUDA=1 -DGPU_EMULATED=1 -DGPU_CODE='"80"' -I$(top_srcdir)/%D%/fake/include $(EMU_CPPFLAGS) \
    -Ddlopen=fake_dlopen -Ddlsym=fake_dlsym -Ddlclose=fake_dlclose $(AM_CPPFLAGS)
tests_libgpu_emu_a_LIBADD = $(gpu_emulated)
CLEANFILES += $(gpu_emulated)
gpu_tests = %D%/gpu-models %D%/gpu-steps %D%/gpu-training %D%/unit-gpu
check_PROGRAMS += $(gpu_tests) %D%/tp-run-fake
TESTS += $(gpu_tests)
tests_unit_gpu_CPPFLAGS = -I$(top_srcdir)/%D%/fake/include $(AM_CPPFLAGS)
tests_unit_gpu_LDADD = %D%/emu/fragments.emo %D%/libgpu-emu.a $(test_libs)
CLEANFILES += %D%/emu/fragments.emo %D%/emu/fragments.o
tests_tp_run_fake_SOURCES = $(bin_tp_run_SOURCES)
tests_tp_run_fake_LDADD = %D%/libgpu-emu.a $(program_libs) $(MPI_LIBS) $(LIBEDIT_LIBS) $(MICROHTTPD_LIBS)
# predicts for the fakes, whose bounds come first
check_PROGRAMS += %D%/mem-estimate-fake
tests_mem_estimate_fake_SOURCES = $(bin_mem_estimate_SOURCES)
tests_mem_estimate_fake_LDFLAGS = -Wl,-u,gpu_room_of $(AM_LDFLAGS)
tests_mem_estimate_fake_LDADD = %D%/libgpu-emu.a $(program_libs)
tests_gpu_models_SOURCES = %D%/gpu-models.c %D%/device-models.c %D%/device-models.h %D%/device-training.c %D%/device-training.h
tests_gpu_models_LDADD = %D%/libgpu-emu.a $(program_libs)
tests_gpu_training_SOURCES = %D%/gpu-training.c %D%/device-gradients.c %D%/device-models.c %D%/device-models.h %D%/device-training.h
tests_gpu_training_LDADD = %D%/libgpu-emu.a $(program_libs)
tests_gpu_steps_SOURCES = %D%/gpu-steps.c %D%/repeats.c %D%/repeats.h
tests_gpu_steps_LDADD = %D%/libgpu-emu.a $(program_libs)
# tests/gpu/run, tried over the fakes
check_PROGRAMS += %D%/gpu/time-attention-fake %D%/gpu/write-model
tests_gpu_time_attention_fake_SOURCES = %D%/gpu/time-attention.c
tests_gpu_time_attention_fake_LDADD = %D%/libgpu-emu.a $(test_libs)
tests_gpu_write_model_LDADD = $(test_libs)
endif
EXTRA_DIST += %D%/gpu/run %D%/gpu/time-attention.c %D%/gpu/time-sdpa.py %D%/gpu/time-training.py %D%/gpu/real-models.c %D%/gpu/write-model.c

# programs and pipelines, and what they are compared with
check_PROGRAMS += %D%/foreign-names %D%/compare-tensors %D%/http-talk %D%/mpi-ranks %D%/on-pty %D%/tcp-ranks %D%/plain-rows %D%/render-template %D%/tokenize %D%/try-grammar %D%/try-options
tests_mpi_ranks_SOURCES = %D%/mpi-ranks.c %D%/all-ranks.c %D%/all-ranks.h
tests_tcp_ranks_SOURCES = %D%/tcp-ranks.c %D%/all-ranks.c %D%/all-ranks.h
tests_http_talk_LDADD = $(test_libs)
tests_mpi_ranks_LDADD = $(test_libs) $(MPI_LIBS)
tests_tcp_ranks_LDADD = $(test_libs)
tests_render_template_LDADD = $(test_libs)
tests_try_grammar_LDADD = $(test_libs)
tests_try_options_LDADD = $(program_libs)
tests_foreign_names_LDADD = $(program_libs)
# preloaded, to let one call fail
check_PROGRAMS += %D%/fail-io.so
tests_fail_io_so_SOURCES = %D%/fail-io.c
# it defines functions that the checks of FORTIFY would put before it
tests_fail_io_so_CFLAGS = $(AM_CFLAGS) -fPIC -U_FORTIFY_SOURCE
tests_fail_io_so_LDFLAGS = -shared
check_PROGRAMS += %D%/cut-commit.so
tests_cut_commit_so_SOURCES = %D%/cut-commit.c
tests_cut_commit_so_CFLAGS = $(tests_fail_io_so_CFLAGS)
tests_cut_commit_so_LDFLAGS = -shared
check_PROGRAMS += %D%/record-io.so
tests_record_io_so_SOURCES = %D%/record-io.c
tests_record_io_so_CFLAGS = $(tests_fail_io_so_CFLAGS)
tests_record_io_so_LDFLAGS = -shared
check_PROGRAMS += %D%/fail-alloc.so
tests_fail_alloc_so_SOURCES = %D%/fail-alloc.c
tests_fail_alloc_so_CFLAGS = $(tests_fail_io_so_CFLAGS)
tests_fail_alloc_so_LDFLAGS = -shared
EXTRA_DIST += %D%/data %D%/oracle
# a release has them in an archive of its own
check_DATA = $(srcdir)/%D%/data/configs.tsv
$(srcdir)/%D%/data/configs.tsv:
	@echo "tests/data is missing: unpack $(distdir)-tests.tar.gz beside this directory" >&2; exit 1
# the longest first, so that none is left to run alone
shell_tests = \
    %D%/gpu.t \
    %D%/families.t \
    %D%/calibration.t \
    %D%/faults.t \
    %D%/pictured.t \
    %D%/train-heads.t \
    %D%/train-references.t \
    %D%/train-pipelines.t \
    %D%/pp-schedule.t \
    %D%/models.t \
    %D%/examples.t \
    %D%/adapted.t \
    %D%/adapter.t \
    %D%/lora.t \
    %D%/alloc.t \
    %D%/mem-estimate.t \
    %D%/roundtrip.t \
    %D%/train.t \
    %D%/optimizers.t \
    %D%/train-state.t \
    %D%/train-sequence.t \
    %D%/train-terms.t \
    %D%/train-from.t \
    %D%/train-saving.t \
    %D%/train-data.t \
    %D%/encoders.t \
    %D%/answers.t \
    %D%/audit.t \
    %D%/bad-families.t \
    %D%/bootstrap.t \
    %D%/carried.t \
    %D%/chat.t \
    %D%/classify.t \
    %D%/completion.t \
    %D%/compute.t \
    %D%/experts.t \
    %D%/features.t \
    %D%/finite.t \
    %D%/first-hour.t \
    %D%/foreign.t \
    %D%/foreign-forms.t \
    %D%/foreign-gpt.t \
    %D%/foreign-megatron.t \
    %D%/gguf.t \
    %D%/frameworks.t \
    %D%/fuzz/fuzz.t \
    %D%/heads.t \
    %D%/html.t \
    %D%/hostile-files.t \
    %D%/house.t \
    %D%/draft.t \
    %D%/generation.t \
    %D%/grammar.t \
    %D%/keys.t \
    %D%/score.t \
    %D%/serve.t \
    %D%/mem-cases.t \
    %D%/mem-emit.t \
    %D%/mem-peak.t \
    %D%/mem-plan.t \
    %D%/hpo-analysis.t \
    %D%/hpo-examples.t \
    %D%/hpo-journal.t \
    %D%/hpo-populations.t \
    %D%/hpo-postgres.t \
    %D%/hpo-running.t \
    %D%/hpo-slurm.t \
    %D%/hpo-disk.t \
    %D%/hpo-transfer.t \
    %D%/hpo-workers.t \
    %D%/hpo-sweep-run.t \
    %D%/hpo-sweep.t \
    %D%/news.t \
    %D%/options.t \
    %D%/outputs.t \
    %D%/plot.t \
    %D%/power-cut.t \
    %D%/pp-partition.t \
    %D%/kv-dtype.t \
    %D%/mapped.t \
    %D%/packed.t \
    %D%/quantize.t \
    %D%/quantize-files.t \
    %D%/quantized.t \
    %D%/source.t \
    %D%/stacks.t \
    %D%/stored.t \
    %D%/terminal.t \
    %D%/templates.t %D%/tensors.t \
    %D%/tokenizer.t \
    %D%/tokens.t \
    %D%/tp-run-input.t \
    %D%/tp-run-machines.t \
    %D%/tp-run-mpi.t \
    %D%/tp-run-program.t \
    %D%/tp-run-sequence.t \
    %D%/cuda-arch.t \
    %D%/deterministic.t \
    %D%/tp-run-experts.t \
    %D%/tp-run-stages.t \
    %D%/tp-run-torchrun.t \
    %D%/tp-run.t \
    %D%/two-stacks.t \
    %D%/train-examples.t \
    %D%/tp-shard-layouts.t \
    %D%/tp-shard-configs.t \
    %D%/tp-shard-disk.t \
    %D%/tp-shard-export.t \
    %D%/tp-shard-frameworks.t \
    %D%/tp-shard-keep.t \
    %D%/tp-shard-memory.t \
    %D%/tp-shard-pad.t \
    %D%/tp-shard-pickle.t \
    %D%/tp-shard-ranks.t \
    %D%/tp-shard-rows.t \
    %D%/tp-shard-safety.t \
    %D%/tp-shard-trust.t \
    %D%/tp-shard.t
dist_check_SCRIPTS += $(shell_tests)
TESTS += $(shell_tests)

# fuzz targets: fuzz/fuzz-NAME.c; each reads its corpus as a test (fuzz/fuzz.t), and changed copies
# of it in `make fuzz`
fuzz_names = adapter calibration chats checkpoint config costs data database devices family forms generation grammar ids index input journal json layout log manifest \
    measure megatron openai part pickle pieces pooling run safetensors said schedule space study sums tcp template tokenizer words
fuzz_programs = \
    %D%/fuzz/fuzz-adapter \
    %D%/fuzz/fuzz-calibration \
    %D%/fuzz/fuzz-chats \
    %D%/fuzz/fuzz-checkpoint \
    %D%/fuzz/fuzz-config \
    %D%/fuzz/fuzz-costs \
    %D%/fuzz/fuzz-data \
    %D%/fuzz/fuzz-database \
    %D%/fuzz/fuzz-devices \
    %D%/fuzz/fuzz-family \
    %D%/fuzz/fuzz-forms \
    %D%/fuzz/fuzz-generation \
    %D%/fuzz/fuzz-grammar \
    %D%/fuzz/fuzz-ids \
    %D%/fuzz/fuzz-index \
    %D%/fuzz/fuzz-input \
    %D%/fuzz/fuzz-journal \
    %D%/fuzz/fuzz-json \
    %D%/fuzz/fuzz-layout \
    %D%/fuzz/fuzz-log \
    %D%/fuzz/fuzz-manifest \
    %D%/fuzz/fuzz-measure \
    %D%/fuzz/fuzz-gguf \
    %D%/fuzz/fuzz-megatron \
    %D%/fuzz/fuzz-openai \
    %D%/fuzz/fuzz-part \
    %D%/fuzz/fuzz-pickle \
    %D%/fuzz/fuzz-pooling \
    %D%/fuzz/fuzz-run \
    %D%/fuzz/fuzz-safetensors \
    %D%/fuzz/fuzz-said \
    %D%/fuzz/fuzz-schedule \
    %D%/fuzz/fuzz-space \
    %D%/fuzz/fuzz-study \
    %D%/fuzz/fuzz-sums \
    %D%/fuzz/fuzz-pieces \
    %D%/fuzz/fuzz-tcp \
    %D%/fuzz/fuzz-template \
    %D%/fuzz/fuzz-tokenizer \
    %D%/fuzz/fuzz-words
check_PROGRAMS += $(fuzz_programs)
tests_fuzz_fuzz_adapter_SOURCES = %D%/fuzz/fuzz-adapter.c %D%/fuzz/driver.c
tests_fuzz_fuzz_calibration_SOURCES = %D%/fuzz/fuzz-calibration.c %D%/fuzz/driver.c
tests_fuzz_fuzz_forms_SOURCES = %D%/fuzz/fuzz-forms.c %D%/fuzz/driver.c %D%/fuzz/files.h
tests_fuzz_fuzz_chats_SOURCES = %D%/fuzz/fuzz-chats.c %D%/fuzz/driver.c cmd/tp-run/chatfile.c cmd/tp-run/conversation.c cmd/tp-run/messages.c $(fuzz_session)
tests_fuzz_fuzz_chats_LDADD = $(program_libs) $(MPI_LIBS)
tests_fuzz_fuzz_checkpoint_SOURCES = %D%/fuzz/fuzz-checkpoint.c %D%/fuzz/driver.c %D%/fuzz/files.h %D%/fuzz/seal.h
tests_fuzz_fuzz_config_SOURCES = %D%/fuzz/fuzz-config.c %D%/fuzz/driver.c
tests_fuzz_fuzz_costs_SOURCES = %D%/fuzz/fuzz-costs.c %D%/fuzz/driver.c cmd/pp-partition/stages.c
tests_fuzz_fuzz_costs_LDADD = $(program_libs)
tests_fuzz_fuzz_data_SOURCES = %D%/fuzz/fuzz-data.c %D%/fuzz/driver.c
tests_fuzz_fuzz_database_SOURCES = %D%/fuzz/fuzz-database.c %D%/fuzz/driver.c %D%/fuzz/smallstudy.h
tests_fuzz_fuzz_database_LDADD = $(test_libs) $(SQLITE3_LIBS)
tests_fuzz_fuzz_devices_SOURCES = %D%/fuzz/fuzz-devices.c %D%/fuzz/driver.c
tests_fuzz_fuzz_family_SOURCES = %D%/fuzz/fuzz-family.c %D%/fuzz/driver.c
tests_fuzz_fuzz_generation_SOURCES = %D%/fuzz/fuzz-generation.c %D%/fuzz/driver.c $(fuzz_session)
tests_fuzz_fuzz_generation_LDADD = $(program_libs) $(MPI_LIBS)
tests_fuzz_fuzz_input_SOURCES = %D%/fuzz/fuzz-input.c %D%/fuzz/driver.c cmd/tp-run/inputlines.c cmd/tp-run/inputs.c cmd/tp-run/named.c $(fuzz_session)
tests_fuzz_fuzz_input_LDADD = $(program_libs) $(MPI_LIBS)
tests_fuzz_fuzz_ids_SOURCES = %D%/fuzz/fuzz-ids.c %D%/fuzz/driver.c
tests_fuzz_fuzz_index_SOURCES = %D%/fuzz/fuzz-index.c %D%/fuzz/driver.c
tests_fuzz_fuzz_journal_SOURCES = %D%/fuzz/fuzz-journal.c %D%/fuzz/driver.c
tests_fuzz_fuzz_journal_LDADD = $(test_libs) $(SQLITE3_LIBS)
tests_fuzz_fuzz_json_SOURCES = %D%/fuzz/fuzz-json.c %D%/fuzz/driver.c
tests_fuzz_fuzz_layout_SOURCES = %D%/fuzz/fuzz-layout.c %D%/fuzz/driver.c cmd/pp-partition/stages.c
tests_fuzz_fuzz_layout_LDADD = $(program_libs)
tests_fuzz_fuzz_log_SOURCES = %D%/fuzz/fuzz-log.c %D%/fuzz/driver.c cmd/tp-run/plot.c cmd/tp-run/traindir.c cmd/tp-run/trainmix.c \
    cmd/tp-run/trainsteps.c
tests_fuzz_fuzz_log_LDADD = $(program_libs)
tests_fuzz_fuzz_manifest_SOURCES = %D%/fuzz/fuzz-manifest.c %D%/fuzz/driver.c %D%/fuzz/seal.h
tests_fuzz_fuzz_measure_SOURCES = %D%/fuzz/fuzz-measure.c %D%/fuzz/driver.c
tests_fuzz_fuzz_gguf_SOURCES = %D%/fuzz/fuzz-gguf.c %D%/fuzz/driver.c
tests_fuzz_fuzz_megatron_SOURCES = %D%/fuzz/fuzz-megatron.c %D%/fuzz/driver.c
tests_fuzz_fuzz_openai_SOURCES = %D%/fuzz/fuzz-openai.c %D%/fuzz/driver.c
tests_fuzz_fuzz_grammar_SOURCES = %D%/fuzz/fuzz-grammar.c %D%/fuzz/driver.c
tests_fuzz_fuzz_said_SOURCES = %D%/fuzz/fuzz-said.c %D%/fuzz/driver.c
tests_fuzz_fuzz_part_SOURCES = %D%/fuzz/fuzz-part.c %D%/fuzz/driver.c
tests_fuzz_fuzz_pickle_SOURCES = %D%/fuzz/fuzz-pickle.c %D%/fuzz/driver.c
tests_fuzz_fuzz_pooling_SOURCES = %D%/fuzz/fuzz-pooling.c %D%/fuzz/driver.c cmd/tp-run/pooling.c
tests_fuzz_fuzz_run_SOURCES = %D%/fuzz/fuzz-run.c %D%/fuzz/driver.c cmd/tp-run/traindir.c cmd/tp-run/trainmix.c cmd/tp-run/trainsteps.c
tests_fuzz_fuzz_run_LDADD = $(program_libs)
tests_fuzz_fuzz_safetensors_SOURCES = %D%/fuzz/fuzz-safetensors.c %D%/fuzz/driver.c
tests_fuzz_fuzz_schedule_SOURCES = %D%/fuzz/fuzz-schedule.c %D%/fuzz/driver.c
tests_fuzz_fuzz_space_SOURCES = %D%/fuzz/fuzz-space.c %D%/fuzz/driver.c
tests_fuzz_fuzz_space_LDADD = $(test_libs) $(YAML_LIBS)
tests_fuzz_fuzz_study_SOURCES = %D%/fuzz/fuzz-study.c %D%/fuzz/driver.c %D%/fuzz/smallstudy.h
tests_fuzz_fuzz_study_LDADD = $(test_libs) $(SQLITE3_LIBS)
tests_fuzz_fuzz_pieces_SOURCES = %D%/fuzz/fuzz-pieces.c %D%/fuzz/driver.c
tests_fuzz_fuzz_sums_SOURCES = %D%/fuzz/fuzz-sums.c %D%/fuzz/driver.c
tests_fuzz_fuzz_tcp_SOURCES = %D%/fuzz/fuzz-tcp.c %D%/fuzz/driver.c
tests_fuzz_fuzz_template_SOURCES = %D%/fuzz/fuzz-template.c %D%/fuzz/driver.c
tests_fuzz_fuzz_tokenizer_SOURCES = %D%/fuzz/fuzz-tokenizer.c %D%/fuzz/driver.c
tests_fuzz_fuzz_words_SOURCES = %D%/fuzz/fuzz-words.c %D%/fuzz/driver.c
fuzz_session = cmd/tp-run/asked.c cmd/tp-run/launcher.c cmd/tp-run/session.c cmd/tp-run/grammars.c
LDADD = $(test_libs)
EXTRA_DIST += %D%/fuzz/corpus %D%/fuzz/grow.sh %D%/fuzz/make-seeds.sh %D%/fuzz/oss-fuzz

# A build with other flags, in a directory beside this one: TREE and TREE_FLAGS.  Its sources are
# copies, so that it may stand in a source tree that is configured itself.  A stamp that is newer than config.h would
# have make look at all objects again, and run the programs among the tests last.
tree:
	rm -rf $(TREE).new
	$(MAKE) $(AM_MAKEFLAGS) distdir distdir=$(TREE).new
	mkdir -p $(TREE) && chmod -R u+w $(TREE).new && cp -Rpu $(TREE).new/. $(TREE)
	rm -rf $(TREE).new
	cd $(TREE) && { test -f Makefile || { ./configure -q $(TREE_FLAGS) && touch -r config.h stamp-h1; }; }

# one more than there are cores, as some tests wait more than they compute
test_jobs = "$$(($$(nproc) + 1))"

# Sanitized programs have the CPU's loops for this machine's generation of x86-64 alone: $$generation.
find_generation = generation=; for g in 3 4; do \
    if echo "int main(void) { return !__builtin_cpu_supports(\"x86-64-v$$g\"); }" | \
        $(CC) -x c -o generation.tmp - > /dev/null 2>&1 && ./generation.tmp; then \
        generation=-DCPU_GENERATION=$$g; fi; done; rm -f generation.tmp

# The tests again under AddressSanitizer and UBSan; check-asan leaves some to check-asan-all.  Most of their time is that of starting programs:
# less where the sanitizers are linked into them, at a fixed address.  With -fexpensive-optimizations the compiler fuses
# products and sums, as it does at -O2.  What runs texts and scripts of this tree, and none of our code, is left out.
sanitize = -O1 -g1 -fexpensive-optimizations -fsanitize=address,undefined -fno-sanitize-recover=undefined \
    -fno-omit-frame-pointer
asan-tree:
	$(find_generation); $(MAKE) $(AM_MAKEFLAGS) tree TREE=build-asan TREE_FLAGS="--without-cuda \
	    CFLAGS='$(sanitize) $$generation' CXXFLAGS='$(sanitize)'"
sanitize_static = -no-pie -static-libasan -static-libubsan
check-asan check-asan-all: asan-tree
	linked='$(HARDEN_LDFLAGS)'; if echo 'int main(void) { return 0; }' | \
	    $(CC) -x c $(sanitize) $(sanitize_static) -o static.tmp - > /dev/null 2>&1; then \
	    linked='$(sanitize_static)'; fi; rm -f static.tmp; \
	cd build-asan && SHORT=1 $(MAKE) $(AM_MAKEFLAGS) -j$(test_jobs) AM_LDFLAGS="$$linked" check \
	    TESTS='$(filter-out $(asan_skips) $(if $(filter check-asan,$@),$(asan_later)),$(TESTS))'
asan_skips = %D%/bootstrap.t %D%/cuda-arch.t %D%/html.t %D%/house.t %D%/news.t
# Of tests/reach.record those of ten seconds and more that come after 98.6 % of all arcs, but for those of failing calls:
# half the time of all, for two arcs a second; calibration.t
# (98.6 %, four arcs a second) too.
asan_later = %D%/answers.t %D%/calibration.t %D%/compute.t %D%/deterministic.t %D%/draft.t %D%/encoders.t %D%/examples.t \
    %D%/families.t %D%/hpo-workers.t %D%/kv-dtype.t %D%/models.t %D%/pp-schedule.t %D%/quantize.t \
    %D%/roundtrip.t %D%/stacks.t %D%/tp-run-experts.t %D%/tp-run-mpi.t %D%/tp-run-program.t \
    %D%/tp-run-sequence.t %D%/tp-run-stages.t %D%/tp-run.t %D%/tp-shard-memory.t %D%/tp-shard-pad.t \
    %D%/tp-shard-rows.t %D%/train-pipelines.t %D%/train-state.t %D%/train.t %D%/two-stacks.t %D%/unit-device \
    %D%/unit-gradient %D%/unit-keys %D%/unit-train

# What each test reaches that cheaper ones do not: tests/reach.record, from which asan_later is taken; half an hour.
EXTRA_DIST += %D%/dump-arcs.c %D%/reach.record
reach:
	$(MAKE) $(AM_MAKEFLAGS) tree TREE=build-reach TREE_FLAGS="--without-cuda \
	    CFLAGS='-O1 -g --coverage -fprofile-update=atomic' CXXFLAGS='-O1 -g --coverage'"
	cd build-reach && $(CC) -O1 -fPIC -c -o dump-arcs.o tests/dump-arcs.c && \
	    $(MAKE) $(AM_MAKEFLAGS) -j$(test_jobs) check TESTS= LDFLAGS=-Wl,--wrap=_exit LIBS="$(LIBS) $$PWD/dump-arcs.o" && \
	    python3 $(abs_srcdir)/%D%/oracle/reach.py . $(abs_srcdir)/%D%/reach.record $(filter-out $(asan_skips),$(TESTS))
.PHONY: reach check-asan-all

# What runs threads, under ThreadSanitizer; no other program is built.
tsan_tests = tests/unit-cpu tests/unit-data tests/unit-engine tests/unit-http tests/unit-serve
check-tsan:
	$(MAKE) $(AM_MAKEFLAGS) tree TREE=build-tsan \
	    TREE_FLAGS="--without-mpi --without-cuda CFLAGS='-O1 -g1 -fsanitize=thread'"
	cd build-tsan && $(MAKE) $(AM_MAKEFLAGS) -j$(test_jobs) $(tsan_tests) && \
	    SHORT=1 $(MAKE) $(AM_MAKEFLAGS) -j$(test_jobs) check-TESTS TESTS='$(tsan_tests)'

# Another compiler, a harder optimizer, and a machine with none of the optional libraries.  .ci/run has clang's warnings
# from the targets of libFuzzer, which are made with -Werror.
check-builds: check-bare
	if command -v clang > /dev/null; then \
	    $(MAKE) $(AM_MAKEFLAGS) tree TREE=build-clang \
	        TREE_FLAGS="CC=clang" && \
	    $(MAKE) $(AM_MAKEFLAGS) -j$(test_jobs) -C build-clang check CFLAGS='-O2 -g -Werror' \
	        check_PROGRAMS='$(clang_tests)' TESTS='$(clang_tests)'; \
	fi
check-bare:
	$(MAKE) $(AM_MAKEFLAGS) tree TREE=build-bare \
	    TREE_FLAGS="--without-cuda CXX=no --without-dnnl --without-cairo --without-sqlite3 --without-yaml --without-zstd \
	        --without-libedit --without-microhttpd --without-mpi"
	cd build-bare && $(MAKE) $(AM_MAKEFLAGS) -j$(test_jobs) check CFLAGS='-O3 -Werror' TESTS='$(bare_tests)'
clang_tests = tests/unit-cpu tests/unit-engine
bare_tests = tests/unit-cpu tests/unit-engine tests/house.t tests/hpo-sweep.t tests/mem-estimate.t \
    tests/pp-partition.t tests/tp-run.t tests/tp-shard.t

# the unit tests on another machine, under qemu-user
EXTRA_DIST += %D%/aarch64/run
check-aarch64:
	UNIT_TESTS='$(UNIT_TESTS)' $(SHELL) $(srcdir)/%D%/aarch64/run
.PHONY: check-aarch64

# Changed inputs for FUZZ_SECONDS each: by clang's libFuzzer where it is, else by the driver.  What
# makes a target fail is left in the build's crash-*.  Another FUZZ_SEED than 0 changes them in the
# same way every time; FUZZ_RUNS of them end a target as well.  FUZZ_BUDGET seconds are dealt among the targets.
FUZZ_BUDGET =
FUZZ_SECONDS = $(if $(FUZZ_BUDGET),$(shell expr $(FUZZ_BUDGET) / $(words $(fuzz_names))),60)
FUZZ_SEED = 0
FUZZ_RUNS =
has_libfuzzer = echo 'int LLVMFuzzerTestOneInput(char *p, long n) { return n && !p; }' | \
    clang -x c -fsanitize=fuzzer,address,undefined -o libfuzzer.tmp - > /dev/null 2>&1
fuzz:
	if $(has_libfuzzer); then target=fuzz-engine; else target=fuzz-driver; fi; \
	rm -f libfuzzer.tmp; $(MAKE) $(AM_MAKEFLAGS) $$target

# one target's failure hides no other's
fuzz-engine:
	$(MAKE) $(AM_MAKEFLAGS) tree TREE=build-fuzz TREE_FLAGS="--without-cuda CC=clang CPPFLAGS=-DLIBFUZZER \
	    CFLAGS='$(filter-out -fexpensive-optimizations,$(sanitize)) -Werror -fsanitize=fuzzer-no-link'"
	cd build-fuzz && $(MAKE) $(AM_MAKEFLAGS) -j"$$(nproc)" LDFLAGS=-fsanitize=fuzzer $(fuzz_programs) && \
	rm -f fuzz-failed && printf '%s\n' $(fuzz_names) | xargs -P "$$(nproc)" -I NAME $(SHELL) -c \
	    'mkdir -p found/NAME && ./tests/fuzz/fuzz-NAME \
	        -print_final_stats=1 -max_total_time=$(FUZZ_SECONDS) $(FUZZ_RUNS:%=-runs=%) -seed=$(FUZZ_SEED) \
	        -artifact_prefix=crash-NAME- \
	        found/NAME tests/fuzz/corpus/NAME > fuzz-NAME.log 2>&1 || echo NAME >> fuzz-failed; \
	    echo "fuzz-NAME: $$(grep executed_units fuzz-NAME.log)"'; \
	if test -s fuzz-failed; then for n in $$(cat fuzz-failed); do \
	    tail -n 40 fuzz-$$n.log; echo "failed: fuzz-$$n"; done; exit 1; fi

fuzz-driver: asan-tree
	cd build-asan && $(MAKE) $(AM_MAKEFLAGS) -j"$$(nproc)" $(fuzz_programs) && \
	printf '%s\n' $(fuzz_names) | xargs -P "$$(nproc)" -I NAME $(SHELL) -c \
	    './tests/fuzz/fuzz-NAME --seconds $(FUZZ_SECONDS) $(FUZZ_RUNS:%=--runs %) --seed $(FUZZ_SEED) \
	        tests/fuzz/corpus/NAME/* > fuzz-NAME.log; status=$$?; \
	    echo "fuzz-NAME: $$(grep "^#" fuzz-NAME.log)"; \
	    [ $$status -eq 0 ] || { echo "failed: fuzz-NAME"; exit 1; }'

# the kernels of the CUDA backend on the CPU, and, by ThreadSanitizer, races between their threads;
# the emulation itself is not watched, and tells it who waits for whom
check-emu: all
	$(MAKE) $(AM_MAKEFLAGS) check TESTS='$(gpu_tests) %D%/gpu.t'
races-tree:
	$(MAKE) $(AM_MAKEFLAGS) tree TREE=build-races TREE_FLAGS="--without-cuda CFLAGS='-O1 -g' \
	    CXXFLAGS='-O1 -g -fsanitize=thread'"
races_flags = LDFLAGS=-fsanitize=thread EMU_CPPFLAGS=-DEMU_TSAN
check-emu-races: races-tree
	cd build-races && $(MAKE) $(AM_MAKEFLAGS) $(races_flags) check TESTS='$(gpu_tests)'
# what a kernel reads before those launched before it have ended: weights, or the process dies there
check-emu-early: all
	FAKE_EARLY=1 $(MAKE) $(AM_MAKEFLAGS) check TESTS=%D%/gpu-models
# each barrier left out: what then passes all tests is not needed, or not tested (tests/emu/record)
check-emu-barriers: all races-tree
	$(MAKE) $(AM_MAKEFLAGS) tests/unit-gpu
	cd build-races && $(MAKE) $(AM_MAKEFLAGS) $(races_flags) tests/unit-gpu
	$(SHELL) $(top_srcdir)/%D%/emu/barriers.sh . build-races $(gpu_kernels) lib/gpu/device.cuh lib/gpu/warps.cuh
# nvcc and ptxas on every kernel, for every architecture that they know; a minute or two
EXTRA_DIST += %D%/ptx/run
if HAVE_CUDA
check-ptx:
	top_srcdir='$(abs_top_srcdir)' $(SHELL) $(top_srcdir)/%D%/ptx/run $(NVCC) $(gpu_kernels:%=$(top_srcdir)/%) $(top_srcdir)/%D%/emu/fragments.cu
else
check-ptx:
	@echo 'this build has no nvcc: see ./configure --help' >&2; exit 1
endif
.PHONY: check-ptx
# what only a GPU can show
gpu_real = %D%/gpu/real-kernels %D%/gpu/real-models %D%/gpu/real-training %D%/gpu/time-attention
tests_gpu_real_kernels_SOURCES = %D%/unit-gpu.c
tests_gpu_real_kernels_CPPFLAGS = -DGPU_REAL=1 $(AM_CPPFLAGS)
tests_gpu_real_kernels_LDADD = %D%/emu/fragments.o $(test_libs)
tests_gpu_real_models_SOURCES = %D%/gpu/real-models.c %D%/device-models.c %D%/device-models.h
tests_gpu_real_models_LDADD = $(program_libs)
tests_gpu_real_training_SOURCES = %D%/gpu-training.c %D%/device-gradients.c %D%/device-models.c %D%/device-models.h %D%/device-training.h
tests_gpu_real_training_CPPFLAGS = -DGPU_REAL=1 $(AM_CPPFLAGS)
tests_gpu_real_training_LDADD = $(program_libs)
tests_gpu_time_attention_LDADD = $(test_libs)
if HAVE_CUDA
check-gpu: all
	$(MAKE) $(AM_MAKEFLAGS) $(gpu_real) %D%/gpu/write-model %D%/compare-tensors
	$(SHELL) $(top_srcdir)/%D%/gpu/run
else
check-gpu:
	@echo 'this build has no CUDA: see ./configure --help' >&2; exit 1
endif
# the same for a machine without compilers, as shardutils-gpu.tar.xz: machine code for GPU_ARCHS
GPU_ARCHS = 80,90,100
EXTRA_DIST += %D%/gpu/pack
gpu-archive:
	$(MAKE) $(AM_MAKEFLAGS) tree TREE=build-gpu TREE_FLAGS="--without-mpi --without-dnnl --without-cairo --without-sqlite3 \
	    --without-yaml --with-cuda-arch=$(GPU_ARCHS) CFLAGS=-O2 CXXFLAGS=-O2"
	cd build-gpu && $(MAKE) $(AM_MAKEFLAGS) bin/tp-run $(gpu_real) %D%/gpu/write-model %D%/compare-tensors
	$(SHELL) $(top_srcdir)/%D%/gpu/pack build-gpu $(top_srcdir) shardutils-gpu.tar.xz
.PHONY: check-gpu gpu-archive
.PHONY: check-emu check-emu-barriers check-emu-early check-emu-races races-tree

check-valgrind: all $(unit_tests)
	for t in $(unit_tests); do \
	    valgrind -q --error-exitcode=9 --leak-check=full ./$$t > /dev/null || exit; done

# changes to the sources that a test must notice; many minutes
EXTRA_DIST += %D%/mutants/list %D%/mutants/run
check-mutants: all $(check_PROGRAMS)
	top_builddir=$(abs_builddir) $(srcdir)/%D%/mutants/run
# what takes long and seldom fails: every tp of every model, every layout of a GPU's memory, every failing call, trainings
# killed at random moments, and held against a loop of PyTorch where the Python TORCH has it; many minutes
TORCH = python3
KILLS = 50
SOAK = 1800
long_tests = %D%/calibration.t %D%/tp-run-mpi.t %D%/draft.t %D%/families.t %D%/faults.t %D%/generation.t %D%/gpu.t %D%/gpu-models %D%/gpu-training \
    %D%/roundtrip.t %D%/unit-device %D%/unit-gpu %D%/unit-gradient %D%/unit-keys %D%/unit-train
check-long: all %D%/tokenize
	LONG=1 EVERY=1 ALL_FAULTS=1 $(MAKE) $(AM_MAKEFLAGS) -j$(test_jobs) check TESTS='$(long_tests)'
	PATH="$(abs_top_builddir)/bin:$$PATH" sh $(srcdir)/%D%/oracle/train-kills $(KILLS)
	PATH="$(abs_top_builddir)/bin:$$PATH" sh $(srcdir)/%D%/oracle/train-kills $(KILLS) --zero 3
	$(MAKE) check TESTS=tests/unit-scheduler SCHEDULES=200
	for script in train-loop.py train-heads.py train-balance.py population.py pruned.py; do \
	    if $(TORCH) -c 'import torch, transformers, optuna' 2> /dev/null; then \
	        PATH="$(abs_top_builddir)/bin:$$PATH" $(TORCH) $(srcdir)/%D%/oracle/$$script || exit; \
	    else \
	        echo "$$script: skipped, $(TORCH) has not torch, transformers and optuna"; fi; done
	if $(TORCH) -c 1 2> /dev/null && bin/tp-run --version | grep -q +microhttpd; then \
	    $(TORCH) $(srcdir)/%D%/oracle/serve-soak.py bin/tp-run $(srcdir)/%D%/data/chat $(SOAK); \
	else \
	    echo "serve-soak.py: skipped, there is no $(TORCH) or no libmicrohttpd"; fi
	if $(TORCH) -c 'import tokenizers' 2> /dev/null; then \
	    cd $(abs_top_builddir) && $(TORCH) $(abs_srcdir)/%D%/oracle/check-unicode.py && \
	    $(TORCH) $(abs_srcdir)/%D%/oracle/fuzz-tokenizers.py $(abs_srcdir)/%D%/data/tokenizer/gpt2.json.gz $(abs_srcdir)/%D%/data/tokenizer/kinds/*.json; \
	else \
	    echo "check-unicode.py, fuzz-tokenizers.py: skipped, $(TORCH) has no tokenizers"; fi

# branches taken by the tests, in lib/ckpt and every reader of foreign bytes; some minutes.  Only these readers are made
# with --coverage: all other code has its usual flags, so that tests are as quick, and compute, as they usually do.
# The first test runs programs as another user, who writes there, too.
EXTRA_DIST += %D%/coverage.record %D%/coverage.sh
coverage_units = %D%/unit-base %D%/unit-ckpt %D%/unit-data %D%/unit-formats %D%/unit-keys %D%/unit-measure %D%/unit-model %D%/unit-outdir %D%/unit-pickle %D%/unit-program %D%/unit-space
coverage_tests = $(coverage_units) %D%/bad-families.t %D%/calibration.t %D%/classify.t %D%/encoders.t %D%/first-hour.t %D%/fuzz/fuzz.t %D%/hostile-files.t \
    %D%/hpo-journal.t %D%/hpo-running.t %D%/hpo-sweep.t %D%/hpo-transfer.t %D%/hpo-workers.t %D%/keys.t %D%/mapped.t %D%/mem-estimate.t %D%/packed.t %D%/pp-partition.t %D%/pp-schedule.t \
    %D%/quantized.t %D%/source.t %D%/tokenizer.t %D%/tokens.t %D%/tp-run-input.t %D%/tp-run-torchrun.t %D%/tp-shard-configs.t %D%/tp-shard-disk.t %D%/tp-shard-export.t \
    %D%/tp-shard-keep.t %D%/tp-shard-memory.t %D%/tp-shard-pickle.t %D%/tp-shard-safety.t %D%/tp-shard-trust.t %D%/tp-shard.t
coverage_programs = $(fuzz_programs) $(coverage_units) %D%/fail-alloc.so %D%/fail-io.so %D%/compare-tensors %D%/plain-rows %D%/render-template %D%/tokenize %D%/try-options
coverage_flags = -O0 -g --coverage -fprofile-update=atomic -U_FORTIFY_SOURCE
coverage:
	$(MAKE) $(AM_MAKEFLAGS) tree TREE=build-coverage TREE_FLAGS="--without-cuda --without-mpi LDFLAGS=--coverage"
	cd build-coverage && find . -name '*.gcda' -exec rm -f {} + && find . -type d -exec chmod a+w {} + && \
	    $(MAKE) $(AM_MAKEFLAGS) CFLAGS='$(coverage_flags)' $$($(SHELL) tests/coverage.sh objects) && \
	    { (umask 0; $(coverage_check) TESTS=%D%/hpo-disk.t) || :; } && \
	    { $(coverage_check) -j"$$(nproc)" TESTS='$(coverage_tests)' || :; } && \
	    $(SHELL) tests/coverage.sh
coverage_check = $(MAKE) $(AM_MAKEFLAGS) -k check check_PROGRAMS='$(coverage_programs)'

# each allocation and each system call of small jobs fails once; many minutes
EXTRA_DIST += %D%/alloc/record %D%/alloc/run %D%/mutants/record
check-alloc: all %D%/fail-alloc.so %D%/fail-io.so
	top_builddir=$(abs_builddir) $(srcdir)/%D%/alloc/run
	ALL_FAULTS=1 $(MAKE) $(AM_MAKEFLAGS) check TESTS=%D%/faults.t
# the first rung: unit programs of seconds, and a script for each program
quick_tests = $(filter-out %D%/unit-cpu %D%/unit-device %D%/unit-engine %D%/unit-gradient,$(unit_tests)) \
    %D%/tp-shard.t %D%/tp-run-input.t %D%/mem-estimate.t %D%/pp-partition.t %D%/hpo-sweep.t
quick_programs = $(filter %D%/unit-%,$(quick_tests)) %D%/compare-tensors %D%/plain-rows %D%/try-options
check-quick: all
	$(MAKE) $(AM_MAKEFLAGS) -j$(test_jobs) check check_PROGRAMS='$(quick_programs)' TESTS='$(quick_tests)'
.PHONY: check-quick
.PHONY: asan-tree check-alloc check-asan check-bare check-builds check-long check-mutants check-tsan check-valgrind coverage fuzz fuzz-driver fuzz-engine tree

# measured as ratios within one run; never part of a test
bench_programs = %D%/bench/bench-sampler %D%/bench/fusing %D%/bench/long-cache %D%/bench/make-model %D%/bench/probe
EXTRA_PROGRAMS = $(bench_programs) $(gpu_real)
CLEANFILES += $(bench_programs)
EXTRA_DIST += %D%/bench/accuracy.txt %D%/bench/figures.py %D%/bench/hardening.sh %D%/bench/hpo-sweep.sh %D%/bench/peers.py %D%/bench/planner.sh %D%/bench/samplers.py %D%/bench/samplers.sh %D%/bench/serving.sh %D%/bench/tp-run.sh \
    %D%/bench/tp-shard.sh
tests_bench_bench_sampler_SOURCES = %D%/bench/bench-sampler.c \
    %D%/bench/objectives.c %D%/bench/objectives.h
tests_bench_bench_sampler_LDADD = $(test_libs) $(YAML_LIBS)
bench: all $(bench_programs)
	for b in $(srcdir)/%D%/bench/*.sh; do \
	    echo "== $$b"; top_srcdir='$(abs_top_srcdir)' top_builddir='$(abs_top_builddir)' sh "$$b" || exit; done
.PHONY: bench
