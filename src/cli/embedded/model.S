// CMFORGE_DEFAULT_MODEL as read-only data, page-aligned as a mapped file would be.
#if defined(__APPLE__)
    .section __DATA,__const
    .globl _cmforge_default_model_begin
    .globl _cmforge_default_model_end
    .p2align 14
_cmforge_default_model_begin:
    .incbin CMFORGE_DEFAULT_MODEL
_cmforge_default_model_end:
#else
    .section .rodata, "a"
    .globl cmforge_default_model_begin
    .globl cmforge_default_model_end
    .balign 4096
cmforge_default_model_begin:
    .incbin CMFORGE_DEFAULT_MODEL
cmforge_default_model_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
#endif
