/* SPDX-License-Identifier: MIT */
/* Scripts about time: views that reappear, drafts that wait, and progress lines. */
#include "script.h"

#define A "a:I8:8=abcdefgh "
#define B "b:F32:2x3=1,2,3,4,5,6 "
#define C "c:I8:4=wxyz "
#define Z "z:I8:20000=.{20000} "
#define BIG "big:I8:69206016=.{69206016} "

static const struct script scripts[] = {
    {"views that were unlinked come back after a second", "tensors",
     "still; trm a/raw; tgone a/raw; trm a/raw =ENOENT; later 1; ttext a/raw abcdefgh; trm a/raw;"
     "trm a/f32; tgone a/raw; tgone a/f32; later 1; ttext a/raw abcdefgh; tstat a/f32 32; trm "
     "a/f32;"
     "ttext a/raw abcdefgh; tgone a/f32",
     A B C Z},
    {"a removal is written two seconds later, or with the next edit", "tensors auto close",
     "still; trmdir c; tgone c/raw; tfile " A B C Z "; open A a.name w trunc; write A two; close A;"
     "tfile " A B Z "; trmdir a; trmdir b; tmkdir b; later 3; fsync",
     Z},
    {"a NumPy header alone waits for its program to go on", "tensors",
     "still; topen A b/f32.npy w trunc; tnpy A '2, 3' ''; close A;"
     "terror b x =ENODATA; later 9; topen A b/f32.npy rw;"
     "size A 128; tpoke A 128 '6 5 4 3 2 1'; close A; tvalues b/f32 '6 5 4 3 2 1'",
     A "b:F32:2x3=6,5,4,3,2,1 " C Z},
    {"readers of the view see only the header; another view is unchanged", "tensors",
     "still; topen A b/f32.npy w trunc; tnpy A '2, 3' ''; close A; tstat b/f32.npy 128;"
     "tvalues b/f32 '1 2 3 4 5 6'; later 11; tstat b/f32.npy 152; tvalues b/f32.npy '1 2 3 4 5 6'",
     A B C Z},
    {"a NumPy header alone waits for at most ten seconds", "tensors",
     "still; topen A b/f32.npy w trunc; tnpy A '2, 3' ''; close A; later 11; topen B b/f32.npy rw;"
     "size B 152; tpoke B 128 '9'; close B; tvalues b/f32 '9 2 3 4 5 6'",
     A "b:F32:2x3=9,2,3,4,5,6 " C Z},
    {"two views whose headers waited too long are both dropped", "tensors",
     "still; topen A b/f32.npy w trunc; tnpy A '2, 3' ''; close A; topen A a/f32.npy w trunc;"
     "tnpy A '8,' ''; close A; later 11; topen A c/f32.npy w trunc; tnpy A '4,' ''; close A;"
     "topen A a/f32.npy r; size A 160; close A; topen A c/f32.npy rw; size A 128;"
     "tpoke A 128 '1 2 3 4'; close A; tvalues c/f32 '1 2 3 4'",
     A B "c:I8:4=\1\2\3\4 " Z},
    {"a reader outlasts the wait of a header", "tensors",
     "still; topen A a/f32.npy rw trunc; tnpy A '8,' ''; tnote A; tnode B r; close A; later 11;"
     "size B 160; close B; topen B a/f32.npy rw; size B 160; tpoke B 128 '65'; close B",
     "a:I8:8=Abcdefgh " B C Z},
    {"the progress of a conversion and of a copy is logged", "tensors large auto",
     "hasty; tput big/type 'F16\n'; logged 'encoding '; put a.name two; fsync;"
     "logged 'copying: 128 of 132 MiB'",
     A B C "big:F16:69206016=138412032 "},
};

SCRIPTS_MAIN("live_times", scripts)
