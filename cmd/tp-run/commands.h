/* commands - the commands of tp-run */
#ifndef CMD_TP_RUN_COMMANDS_H
#define CMD_TP_RUN_COMMANDS_H

int generate_main(const char *program, int argc, char **argv);
int chat_main(const char *program, int argc, char **argv);
int load_main(const char *program, int argc, char **argv);
int serve_main(const char *program, int argc, char **argv);
int score_main(const char *program, int argc, char **argv);
int plot_main(const char *program, int argc, char **argv);
int train_main(const char *program, int argc, char **argv);
int bench_main(const char *program, int argc, char **argv);
int classify_main(const char *program, int argc, char **argv);
int embed_main(const char *program, int argc, char **argv);
int logits_main(const char *program, int argc, char **argv);
int devices_main(const char *program, int argc, char **argv);
int tokens_main(const char *program, int argc, char **argv);
int detokenize_main(const char *program, int argc, char **argv);
int program_main(const char *program, int argc, char **argv);

#endif
