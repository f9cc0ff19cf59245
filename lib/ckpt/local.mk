# lib/ckpt
