/* SPDX-License-Identifier: MIT */
/* Scripts about time: views that reappear, drafts that wait, edits that nobody waits for, requests
 * that wait for a write, and a full disk; models of more than 64 MiB, of which copies are not waited
 * for. */
#include "script.h"

#define A "a:I8:8=abcdefgh "
#define B "b:F32:2x3=1,2,3,4,5,6 "
#define C "c:I8:4=wxyz "
#define Z "z:I8:20000=.{20000} "
#define BIG "big:I8:69206016=.{69206016} "
#define LONG                                                                                       \
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" \
    "xx"

static const struct script scripts[] = {
    {"views that were unlinked come back after a second", "tensors",
     "still; rm /a/raw; gone /a/raw; rm /a/raw =ENOENT; later 1; text /a/raw abcdefgh; rm /a/raw;"
     "rm /a/f32; gone /a/raw; gone /a/f32; later 1; text /a/raw abcdefgh; stat /a/f32 32;"
     "rm /a/f32; text /a/raw abcdefgh; gone /a/f32"},
    {"a removal is written two seconds later, or with the next edit; not if the name is made again",
     "tensors auto close",
     "still; rmdir /c; gone /c/raw; tfile " A B C Z "; open A a.name w trunc; write A two; close A;"
     "tfile " A B Z "; rmdir /a; rmdir /b; mkdir /b; mkdir /a; rmdir /a; later 3; fsync; tfile " B Z
     "; rmdir /b; mkdir /b; put /b/type I8; put /b/shape 1; put /b/raw x; mkdir /c; put "
     "a.name three; tfile " B Z "; fsync",
     "b:I8:1=x " Z},
    {"a removal of a tensor waits its two seconds, also if a key is removed after it",
     "tensors auto close",
     "still; rmdir /c; rm a.other; later 1; later 0; mkdir /c; put /c/type I8;"
     "put /c/shape 1; put /c/raw x; fsync; list / 'a b c z'",
     A B "c:I8:1=x " Z},
    {"a removal waits its second, also long after one that was taken back", "auto",
     "still; type a.count u64; rm a.count; put a.count 7; later 70; rm a.count; later 0; "
     "file " A_NAME "a.count:u64=7 " A_OTHER A_LIST "; put a.count 8; typed a.count u64; fsync",
     A_NAME "a.count:u64=8 " A_OTHER A_LIST},
    {"a removal waits its two seconds, also after one that was refused", "tensors auto",
     "still; rmdir /a; rmdir /b; rmdir /c; rmdir /z =EPERM; later 70; rmdir /a; later 0; mkdir /a;"
     "put /a/type I8; put /a/shape 1; put /a/raw x; fsync; list / 'a b c z'",
     "a:I8:1=x " B C Z},
    {"a NumPy header alone waits for its program to go on", "tensors",
     "still; open A /b/f32.npy w trunc; npy A '2, 3' ''; close A; good /b; later 9; open A "
     "/b/f32.npy rw; size A 128; poke A 128 '6 5 4 3 2 1'; close A; values /b/f32 '6 5 4 3 2 1'",
     A "b:F32:2x3=6,5,4,3,2,1 " C Z},
    {"readers of the view see only the header; another view is unchanged", "tensors",
     "still; open A /b/f32.npy w trunc; npy A '2, 3' ''; close A; stat /b/f32.npy 128;"
     "values /b/f32 '1 2 3 4 5 6'; later 11; stat /b/f32.npy 152; values /b/f32.npy '1 2 3 4 5 6'"},
    {"a NumPy header alone waits for at most ten seconds", "tensors",
     "still; open A /b/f32.npy w trunc; npy A '2, 3' ''; close A; later 11; open B /b/f32.npy rw;"
     "size B 152; poke B 128 '9'; close B; values /b/f32 '9 2 3 4 5 6'",
     A "b:F32:2x3=9,2,3,4,5,6 " C Z},
    {"two views whose headers waited too long are both dropped", "tensors",
     "still; open A /b/f32.npy w trunc; npy A '2, 3' ''; close A; open A /a/f32.npy w trunc;"
     "npy A '8,' ''; close A; later 11; open A /c/f32.npy w trunc; npy A '4,' ''; close A;"
     "open A /a/f32.npy r; size A 160; close A; open A /c/f32.npy rw; size A 128;"
     "poke A 128 '1 2 3 4'; close A; values /c/f32 '1 2 3 4'",
     A B "c:I8:4=\1\2\3\4 " Z},
    {"a reader outlasts the wait of a header", "tensors",
     "still; open A /a/f32.npy rw trunc; npy A '8,' ''; note A; node B r; close A; later 11;"
     "size B 160; close B; open B /a/f32.npy rw; size B 160; poke B 128 '65'; close B",
     "a:I8:8=Abcdefgh " B C Z},

    /* ---- edits that no request waits for; `held` waits until the write begins ---- */
    {"a truncation is written after its handle is released", "auto close",
     "behind 100; hold; open A a.name w trunc; release A; later 1; held; go; fsync",
     "a.name:string= " A_COUNT A_OTHER A_LIST},
    {"what a killed process wrote is written", "auto close",
     "behind 100; hold; open A a.name w trunc; write A two; release A; later 1; held; go; fsync",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"the removal of a key, directly or through its backup, is written", "auto",
     "behind 100; hold; rm a.count; later 1; held; go; fsync; mv a.name a.name~; hold; rm a.name~;"
     "later 1; held; go; fsync",
     A_OTHER A_LIST},
    {"an edited tensor and a removed tensor are written", "tensors auto",
     "hold; open A /a/raw w; write A X; release A; held; go; fsync; hold; rmdir /c; held; go; "
     "fsync",
     "a:I8:8=Xbcdefgh " B Z},
    {"a new tensor is written", "tensors auto",
     "behind 100; hold; mkdir /n; put /n/type I8; put /n/shape 2; put /n/raw 12; later 3; held; go;"
     "fsync",
     A B C Z "n:I8:2=12 "},
    {"a key removed while a write fails is removed after a second", "close",
     "behind 100; open A a.count w trunc; write A '9\n'; hold; & flush A; held; rm a.name; go EIO;"
     "wait =EIO; hold; later 1; held; go; close A =EIO; fsync",
     A_COUNT A_OTHER A_LIST},

    /* ---- requests that wait for a write, and edits that do not fit on the disk ---- */
    {"a signal interrupts a request that waits for a write begun by another program", "sync",
     "put a.name two; hold; & fsync; held; & fsync; interrupt; go; wait; wait =EINTR; fsync",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"a signal interrupts the request that began a write, but not one that waits for it", "close",
     "open A a.name w trunc; write A two; hold; & flush A; held; & fsync; interrupt first;"
     "wait =EINTR; go; wait; release A; text a.name 'two\n'",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"a rename over a key that is about to get the same value waits for it", "close",
     "put .c two; put .d two; hold; & mv .c a.name; held; & mv .d a.name; interrupt; go; wait;"
     "wait =EINTR",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"no room for an edit: every later fsync and close reports it, and other edits stay", "sync",
     "put a.name two; full; open A a.count w trunc; open B a.count w; write A 9; flush A =ENOSPC;"
     "refused a.count; fsync A =ENOSPC; flush A =ENOSPC; fsync B =ENOSPC; close B; close A =ENOSPC;"
     "good a.name; text a.name 'two\n'; text a.count '7\n'; full no; put a.other 10; fsync",
     "a.name:string=two " A_COUNT "a.other:u32=10 " A_LIST},
    {"no room for an edit: the close of a duplicate fails too, until the key is opened again",
     "close",
     "full; open B a.name w trunc; write B two; flush B =ENOSPC; flush B =ENOSPC; fsync B =ENOSPC;"
     "open C a.name w; flush B; close C; later 2; full no; write B two 0; flush B; close B",
     "a.name:string=two " A_COUNT A_OTHER A_LIST},
    {"an edit succeeds if there is room by the time it is written", "sync",
     "full; open A a.count w trunc; later 2; full no; write A 9; flush A; close A; fsync",
     A_NAME "a.count:u32=9 " A_OTHER A_LIST},
    {"what is changed and changed back is no edit, and not called one", "sync",
     "put a.count 9; put a.count 7; fsync; logged '!a.count: changed'"},
    {"nothing is written automatically with commit=sync", "sync",
     "put a.name two; later 20; put a.count 9; put a.other 10; put a.name three; rm a.list;"
     "put a.count 10; put a.other 11; file " UNCHANGED,
     "a.name:string=three a.count:u32=10 a.other:u32=11 "},
    {"no room for a rename: a helper renamed over a key stays a helper", "sync",
     "put .c 12; full; mv .c a.count =ENOSPC; text .c 12; text a.count '7\n'; refused a.count;"
     "full no; mv .c a.count; good a.count; fsync",
     A_NAME "a.count:u32=12 " A_OTHER A_LIST},
    {"no room for a removal: it is named, and made once there is room", "auto close",
     "rm a.count; full; reopen =ENOSPC; text a.count '7\n'; full no; rm a.count; full; "
     "fsync "
     "=ENOSPC; owes 'a.count: removed: not written'; full no; put a.name 8; owes; fsync",
     "a.name:string=8 " A_OTHER A_LIST},
    {"a removal that cannot be made, which only its write shows: other edits are made", "close",
     "rm a.count; open A a.name w trunc; write A two; hold; & flush A; held; go EDQUOT; wait;"
     "file a.name:string=two " A_COUNT A_OTHER A_LIST "; owes a.count; close A; fsync; owes;"
     "rm a.other; open A a.name w trunc; write A three; hold; & flush A; held; go EIO; wait;"
     "file a.name:string=three " A_OTHER A_LIST "; owes a.other; close A; fsync; owes",
     "a.name:string=three " A_LIST},
    {"no room for a rename: a tensor removed earlier stays removed", "tensors sync",
     "rmdir /b; mv /a /b; full; mv /c /x =ENOSPC; full no; list / 'b c z'; fsync; list / 'b c z'",
     "b:I8:8=abcdefgh c:I8:4=wxyz z:I8:20000=.{20000} "},
    {"bytes that are collected are on the disk before they are accepted", "tensors sync",
     "put /c/raw WXYZ; fail EIO; open A /a/raw w; write A X; flush A =EIO; fail; close A =EIO; "
     "text "
     "/a/raw abcdefgh; put a.name two; fsync; tfile " A B "c:I8:4=WXYZ " Z "; put /a/raw ABCDEFGH",
     "a:I8:8=ABCDEFGH " B "c:I8:4=WXYZ " Z},
    {"no room for the bytes of one tensor: the bytes of another stay", "tensors sync",
     "put /c/raw WXYZ; open A /a/raw w; write A X; full; open B /a/raw w; flush A =ENOSPC;"
     "refused /a 'are free'; release A; release B; text /a/raw abcdefgh; text /c/raw WXYZ; full no;"
     "fsync",
     "a:I8:8=abcdefgh b:F32:2x3=1,2,3,4,5,6 c:I8:4=WXYZ z:I8:20000=.{20000} "},
    {"an editor's backup keeps a value whose write fails", "sync",
     "put .c 12; mv .c a.name; hold; & fsync; held; mv a.name a.name~; go EIO; wait =EIO;"
     "text a.name~ '12\n'; mv a.name~ a.name; fsync",
     "a.name:string=12 " A_COUNT A_OTHER A_LIST},
    {"a close waits for the rename that took its name, and its text is dropped", "close",
     "put .c 12; open A a.name rw; hold; & mv .c a.name; held; write A x; & flush A; go;"
     "wait; wait; text a.name '12\n'; close A",
     "a.name:string=12 " A_COUNT A_OTHER A_LIST},

    /* ==== large models ==== */
    {"an edit of a large model is written later, also after one that had no room",
     "tensors large auto",
     "still; put a.name two; file " UNCHANGED "; text a.name 'two\n'; full; later 11; due; full no;"
     "put a.count 9; put /c/raw WXYZ; mv /a /d; text /c/raw WXYZ; later 9; due; file " UNCHANGED
     "; later 2; due; file a.name:string=two a.count:u32=9 a.other:u32=8 " A_LIST
     "; put a.count x =EINVAL",
     "d:I8:8=abcdefgh " B "c:I8:4=WXYZ " BIG},
    {"conversions of a large model are collected", "tensors large auto",
     "put /a/type 'F32\n'; put /b/type 'F16\n'; put /big/type 'F16\n'; tfile a:I8:8=abcdefgh " B
     "c:I8:4=wxyz " BIG "; values /b/f32 '1 2 3 4 5 6'; fsync",
     "a:F32:8=97,98,99,100,101,102,103,104 b:F16:2x3=12 c:I8:4=wxyz big:F16:69206016=138412032 "},
    {"an edit in place is written at once beside a removal that copies a large model",
     "auto large choose",
     "rm a.list; put a.count 9; file " A_NAME "a.count:u32=9 " A_OTHER A_LIST "; fsync",
     A_NAME "a.count:u32=9 " A_OTHER},
    {"a removal that joins collected edits is written as long after it as they are",
     "tensors large auto",
     "still; put a.name two; later 9; rmdir /c; later 9; due; file " UNCHANGED "; later 1; due;"
     "file a.name:string=two " A_COUNT A_OTHER A_LIST,
     A B BIG},
    {"a removal has its second after one that had no room", "auto close",
     "still; rm a.other; full; later 2; due; full no; later 70; rm a.count; later 0; due;"
     "file " UNCHANGED "; later 1; due; file " A_NAME A_LIST,
     A_NAME A_LIST},
    {"a collected edit is written by time after one in place that was finished late",
     "auto large choose",
     "still; fail EIO; open A a.count w trunc; write A 9; flush A =EIO; fail; release A; put "
     "a.name " LONG "; later 11; due; file a.name:string=" LONG " a.count:u32=9 " A_OTHER A_LIST,
     "a.name:string=" LONG " a.count:u32=9 " A_OTHER A_LIST},
    {"a removal has its second after a long write, too", "large auto",
     "still; hold; put a.name two; later 10; held; later 60; rm a.count; go; later 0; due;"
     "later 0; due; file a.name:string=two " A_COUNT A_OTHER A_LIST "; fsync",
     "a.name:string=two " A_OTHER A_LIST},
    {"a removal that has room at last is no error for one that comes while it is written", "close",
     "rm a.count; full; fsync =ENOSPC; full no; hold; & fsync; held; rm a.other; go; wait; fsync",
     A_NAME A_LIST},
    {"a removal that copies a large model is written when collected edits would be",
     "tensors large auto",
     "behind 1000; rmdir /c; later 3; due; tfile " A B "c:I8:4=wxyz " BIG
     "; later 11; due; tfile " A B BIG,
     A B BIG},
    {"an edit that was collected during a write waits for those after it", "tensors large auto",
     "behind 1000; put a.name two; hold; & fsync; held; open A a.count w trunc; write A 9;"
     "& flush A; later 11; due; go; wait; wait; due; file a.name:string=two " A_COUNT A_OTHER A_LIST
     "; release A; later 11; due; file a.name:string=two a.count:u32=9 " A_OTHER A_LIST,
     A B "c:I8:4=wxyz " BIG},
    {"a large model of many parts is written", "tensors large sync",
     "open A /big/raw rw; dots A 264 262144; close A; dotted /big/raw 264 262144; fsync;"
     "open A /big/raw w; write A . 0; close A; text /a/raw abcdefgh; rmdir /big",
     "a:I8:8=abcdefgh " B "c:I8:4=wxyz "},
    {"a large model that another program changed is not written", "tensors large auto",
     "put a.name two; fsync; edits same; alter; edits changed; put a.name three =ESTALE;"
     "put /c/raw WXYZ =ESTALE; restore; text a.name 'two\n'; text /c/raw wxyz; put a.name four;"
     "put /c/raw 1234; fail EIO; fsync =EIO; text a.name 'four\n'; text /c/raw 1234; fail; fsync",
     "a:I8:8=abcdefgh " B "c:I8:4=1234 " BIG},
    {"a close waits for an edit in place of a large model", "tensors large inplace auto",
     "put a.name two; file a.name:string=two " A_COUNT A_OTHER A_LIST
     "; put /a/raw 12345678; tfile a:I8:8=12345678 " B "c:I8:4=wxyz " BIG
     "; edits same; put a.name one; put a.name one",
     "a:I8:8=12345678 " B "c:I8:4=wxyz " BIG},
};

SCRIPTS_MAIN("live_times", scripts)
