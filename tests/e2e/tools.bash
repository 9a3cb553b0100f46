#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2016 # the commands' own shells expand them
# The matrix of reading tools: commands that are run in a mount and in a plain copy of it, and that have to
# print the same. A command may use TREES, directories that are the same on both sides, and T, an empty directory
# of its own. It leaves the collection `busy` and feed/log.ndjson out, since others may be writing. It has to
# end with 0 and to print something.
#
# Each tool of the table is a test of the same name in tools.bats.

declare -gA tools=(
	[cat]='cat feed/user/*.json feed/user/log.ndjson data/user/*.json; cat -A <feed/order/log.ndjson | tail -n 3'
	[tac]='tac feed/user/log.ndjson; tac feed/user/*.json'
	[head]='head -n 7 feed/user/log.ndjson; head -n -7 feed/order/log.ndjson; head -c 100003 feed/item/log.ndjson
		head -c -999 feed/order/log.ndjson; head -n 1 feed/user/*.json; head -qn 2 <feed/item/log.ndjson'
	[tail]='tail -n 7 feed/user/log.ndjson; tail -n +60 feed/order/log.ndjson; tail -c 100003 feed/item/log.ndjson
		tail -c +70001 feed/order/log.ndjson; tail -n 1 feed/user/*.json; tail -qn 2 <feed/item/log.ndjson'
	[less]='less feed/user/log.ndjson
		less -f feed/order/*.json
		script -qec "less -SXE +G feed/user/log.ndjson" /dev/null </dev/null'
	[wc]='wc -lcmwL feed/user/*.json feed/[!b]*/log.ndjson data/user/*; wc -c <feed/order/log.ndjson; cat feed/user/*.json | wc'
	[grep]='grep -rn "\"key\":\"user:1" $TREES | sort; grep -rlF "数据" $TREES | sort
		grep -c PUT feed/user/log.ndjson; grep -m 2 -b DELETE feed/order/log.ndjson
		grep -L "\"type\":\"PUT\"" feed/order/*.json; grep -rh --include=*.json -o "\"sequence\":[0-9]*" $TREES | sort'
	[find]='find $TREES -type f -newer feed/user/0000000000000090.json | grep -v ndjson | sort
		find $TREES -newermt @1700005000 ! -newermt @1700006000 -name "*.json" | sort
		find $TREES -type f -size +4k -printf "%p %s %m %u %T@\n" | sort
		find $TREES \( -size -300c -o -type l -o -empty -o -perm 755 \) -printf "%p %y %l\n" | sort
		for file in feed/user/*1.json; do find $TREES -inum "$(stat -c %i "$file")"; done
		find feed/user -ls | awk "{ print \$1 }" | sort | uniq -d | wc -l
		find $TREES -name "*2.json" -exec grep -l PUT {} + | sort'
	# A directory and the blocks of a file take what the file system likes.
	[du]='find $TREES -type f -print0 | sort -z | du -ab --files0-from=-; du -ac --apparent-size feed/user/*.json
		du $TREES | awk "{ print (\$1 > 0), \$2 }" | sort'
	# Sizes are those of the store and of the disk: there is room, and it adds up.
	[df]='df -P feed/user/log.ndjson data | awk "NR > 1 { print NF, (\$2 > 0), (\$3 > 0), (\$4 > 0), (\$3 + \$4 <= \$2) }"'
	[ls]='find $TREES -type f -print0 | sort -z | xargs -0 ls -l; ls -l --time-style=full-iso feed/user/*.json; ls -l feed/user | grep -v ^total; ls $TREES
		ls -ltr feed/order/*.json; ls -lSh feed/user/*.json; ls -1p feed/user; ls -Q data/user; ls -d feed/[!b]*/'
	[stat]='stat -c "%A %F %h %U %G %s %Y %n" feed/user/* feed/order/* data/user/*; stat -Lc %s feed/user/log.ndjson'
	[sort]='sort -t: -k3 feed/user/log.ndjson; sort -m feed/[!b]*/0*1.json; sort -ruS 1M feed/item/log.ndjson
		sort -t: -nk2 -c feed/user/log.ndjson; sort --parallel=2 feed/user/*.json feed/order/log.ndjson'
	[uniq]='cut -c 1-14 feed/user/log.ndjson | uniq -c; uniq -w 10 feed/order/log.ndjson'
	[jq]='jq -r .key feed/user/*.json; jq -s "map(.value // \"{}\" | fromjson | .n) | add" feed/order/log.ndjson
		jq -c "select(.type == \"DELETE\")" feed/[!b]*/log.ndjson; jq -S . data/user/*.json; jq -n "[inputs] | length" feed/item/log.ndjson'
	[awk]='awk -F "\"" "{ n[\$6]++ } END { for (t in n) print t, n[t] }" feed/user/log.ndjson | sort
		awk "FNR == 1 { print FILENAME, NR, length(\$0) }" feed/order/*.json
		awk "{ while ((getline line < \"feed/user/log.ndjson\") > 0) n++ } END { print n, NR }" feed/order/log.ndjson'
	[sed]='sed -n "5,9p;\$p" feed/user/log.ndjson; sed "s/\"key\":\"[^\"]*\"/K/" feed/order/log.ndjson; sed -s -n 1F feed/user/*.json
		sed 3q feed/item/log.ndjson; sed -n "\$=" feed/[!b]*/*.json'
	[cut]='cut -d, -f1-3 feed/user/log.ndjson; cut -c 1-70 feed/order/*.json; cut -b 100-2000 <feed/item/log.ndjson'
	[paste]='paste feed/user/log.ndjson feed/order/log.ndjson; paste -sd+ feed/item/log.ndjson'
	[comm]='comm -3 <(sort feed/user/log.ndjson) <(sort feed/user/*.json | head -n 50)'
	[od]='od -c feed/user/log.ndjson | tail -n 50; od -An -tx1 -j 70001 -N 999 feed/order/log.ndjson'
	[split]='split -n 7 feed/user/log.ndjson $T/n.; split -n l/3 feed/order/log.ndjson $T/l.; split -b 10007 feed/order/log.ndjson $T/b.
		split -C 9999 -a 3 feed/item/log.ndjson $T/c.; cd $T; md5sum *; cat n.*; cat b.*'
	[xargs]='find $TREES -type f -print0 | sort -z | xargs -0 cat; find $TREES -type f -print0 | xargs -0 -P 4 -n 3 cksum | sort'
	[dd]='for size in 7 511 4095 4097 65537 1000003 1048577; do
			dd if=feed/order/log.ndjson bs=$size count=3000 status=none | md5sum
			dd if=feed/item/log.ndjson bs=$size skip=3 count=40 status=none | md5sum
		done
		dd if=feed/user/log.ndjson bs=10M iflag=fullblock status=none
		dd if=feed/user/log.ndjson bs=333 skip=70001 count=1007 iflag=skip_bytes,count_bytes status=none
		dd if=feed/item/log.ndjson bs=512 conv=swab,sync status=none | md5sum
		dd if=feed/user/0000000000000090.json bs=3001 skip=5 2>&1 | grep records'
	[cmp]='cmp <(cat feed/user/*.json) feed/user/log.ndjson; cmp -s feed/user/0*1.json feed/order/log.ndjson || echo other
		cmp -l -n 500 feed/user/log.ndjson feed/order/log.ndjson || echo "ends with $?"
		cmp -i 70001:70001 feed/item/log.ndjson feed/item/log.ndjson && echo same'
	[diff]='diff -r --no-dereference feed/user feed/order || echo "ends with $?"; diff -q feed/user/log.ndjson feed/item/log.ndjson || echo other
		diff -u feed/user/*90.json feed/user/*30.json || echo "ends with $?"; cat feed/user/*.json | diff - feed/user/log.ndjson'
	[md5sum]='md5sum feed/[!b]*/*.json feed/user/log.ndjson data/[!b]*/*.json >$T/sums; cat $T/sums; md5sum -c $T/sums'
	[sha256sum]='sha256sum feed/[!b]*/*.json feed/user/log.ndjson data/[!b]*/*.json; cksum feed/user/log.ndjson; b2sum <feed/order/log.ndjson'
	[gzip]='gzip -c feed/user/log.ndjson | gzip -dc; gzip -c feed/user/*.json | zgrep -c PUT; xz -0c <feed/item/log.ndjson | xz -dc | md5sum'
	[tar]='tar -cf $T/tar --sort=name $TREES; tar -tvf $T/tar; tar -df $T/tar; md5sum <$T/tar
		tar -cS --sort=name $TREES | md5sum; mkdir $T/out; tar -c $TREES | tar -xC $T/out
		for tree in $TREES; do diff -r --no-dereference $tree $T/out/$tree; done; tar -rf $T/tar feed/user/log.ndjson; md5sum <$T/tar'
	[cpio]='find $TREES -print0 | cpio -0 --quiet -oH newc >$T/cpio; cpio --quiet -tv <$T/cpio | grep -v ^d | sort -k 9; mkdir $T/out $T/passed
		(cd $T/out; cpio --quiet -idm <$T/cpio); find $TREES -print0 | cpio -0 --quiet -pdm $T/passed
		for tree in $TREES; do diff -r --no-dereference $tree $T/out/$tree; diff -r --no-dereference $tree $T/passed/$tree; done'
	# -y keeps links; without it zip reads what they lead to
	[zip]='zip -qry $T/x.zip $TREES; unzip -tq $T/x.zip >/dev/null; unzip -l $T/x.zip | sed "1d;\$d" | sort -k 4
		unzip -p $T/x.zip feed/user/log.ndjson | cmp - feed/user/log.ndjson; mkdir $T/out; unzip -q $T/x.zip -d $T/out
		for tree in $TREES; do diff -r --no-dereference $tree $T/out/$tree; done'
	[rsync]='rsync -aR $TREES $T/out; for tree in $TREES; do diff -r --no-dereference $tree $T/out/$tree; done
		rsync -aRi $TREES $T/out; rsync -aRic $TREES $T/out; rsync -an --list-only feed/user/ | grep -v "^d"
		rsync -aR --inplace --no-whole-file --block-size=700 $TREES $T/out; rsync -rRci --size-only $TREES $T/out; find $T/out -type f | wc -l'
	[cp]='cp -r $TREES $T; cp -aL --parents feed/user/log.ndjson $T; cp -p feed/user/*1.json $T; cp -u feed/user/*.json $T
		cp --sparse=always feed/item/log.ndjson $T/sparse; cd $T; find . -type f -print0 | sort -z | xargs -0 md5sum; stat -c "%a %Y %n" *1.json'
	[cp --reflink]='cp --reflink=auto feed/item/log.ndjson $T/log; cp -r --reflink=auto feed/user $T; cp --reflink=never data/user/* $T
		cd $T; find . -type f -print0 | sort -z | xargs -0 md5sum'
	[install]='install -pm 640 feed/user/*.json feed/user/log.ndjson $T; stat -c "%a %s %n" $T/* | sed "s#$T##"; cat $T/*'
	[perl]='perl -ne "print if eof" feed/user/*.json; perl -e "print -s, \" \", -M > 0, -T, \"\n\" for @ARGV" feed/user/*.json feed/item/log.ndjson'
)

# busybox's own, which read in ways of their own: sendfile, sizes, whole buffers
tools+=(
	[busybox cat]='busybox cat feed/user/*.json feed/item/log.ndjson; busybox cat data/user/*.json'
	[busybox tail]='busybox tail -n 7 feed/user/log.ndjson; busybox tail -c 70001 feed/item/log.ndjson; busybox tail -n +50 feed/order/log.ndjson
		busybox tail -n 1 feed/user/*.json'
	[busybox head]='busybox head -n 7 feed/user/log.ndjson; busybox head -c 70001 feed/item/log.ndjson; busybox head -n -50 feed/order/log.ndjson'
	[busybox wc]='busybox wc feed/user/*.json feed/item/log.ndjson; busybox wc -c <feed/user/log.ndjson'
	[busybox grep]='busybox grep -n PUT feed/user/*.json; busybox grep -c "user:1" feed/user/log.ndjson; busybox grep -l DELETE feed/order/*.json'
	[busybox find]='busybox find $TREES -type f -size +8 | sort; busybox find $TREES -newer feed/user/0000000000000090.json -name "*.json" | sort'
	[busybox tar]='busybox tar -cf $T/tar $TREES; tar -tvf $T/tar | sort -k 6; mkdir $T/out; busybox tar -xf $T/tar -C $T/out
		for tree in $TREES; do diff -r --no-dereference $tree $T/out/$tree; done'
	[busybox cpio]='find $TREES -type f | sort | busybox cpio -oH newc 2>$T/e | cpio --quiet -iv --to-stdout 2>&1 | md5sum; cat $T/e'
	[busybox cp]='busybox cp -r $TREES $T; busybox cp -a feed/user $T/kept; cd $T; find . -type f -print0 | sort -z | xargs -0 busybox md5sum
		stat -c "%Y %n" kept/*.json'
	[busybox md5sum]='busybox md5sum feed/user/*.json feed/item/log.ndjson >$T/sums; cat $T/sums; busybox md5sum -c $T/sums; busybox sha256sum feed/user/log.ndjson'
	[busybox ls]='busybox ls -l feed/user | busybox grep -v ^total; busybox ls data/user'
	[busybox du]='find $TREES -type f -print0 | xargs -0 busybox du | awk "{ print (\$1 > 0), \$2 }" | sort'
	[busybox awk]='busybox awk -F: "{ print \$2, length(\$0) }" feed/user/log.ndjson feed/order/*.json'
	[busybox sed]='busybox sed -n "5,9p;\$p" feed/user/log.ndjson; busybox sed "s/key/KEY/g" feed/order/*.json'
	[busybox sort]='busybox sort -r feed/user/log.ndjson; busybox cut -c 1-50 feed/order/log.ndjson | busybox sort | busybox uniq -c'
	[busybox dd]='busybox dd if=feed/item/log.ndjson bs=4097 skip=3 2>/dev/null | md5sum; busybox dd if=feed/user/log.ndjson bs=999999 2>/dev/null'
	[busybox cmp]='busybox cmp feed/user/log.ndjson feed/order/log.ndjson || echo "ends with $?"; cat feed/user/*.json | busybox cmp - feed/user/log.ndjson
		busybox diff feed/user/*90.json feed/user/*30.json || echo "ends with $?"'
	[busybox tac]='busybox tac feed/user/log.ndjson; busybox rev feed/order/log.ndjson; busybox od -c feed/user/*30.json; busybox hexdump -C feed/user/*30.json'
	[busybox gzip]='busybox gzip -c feed/user/log.ndjson | busybox zcat; busybox base64 feed/user/*90.json | busybox base64 -d'
)

# The shell and the programs of a few lines
tools+=(
	[bash while read]='while IFS= read -r line; do echo "${#line} ${line:0:60}"; done <feed/user/log.ndjson
		while IFS= read -r -d , field; do echo "$field"; done <feed/order/log.ndjson | cut -c 1-80
		for file in feed/user/*.json; do read -r line <$file; echo "${line%%,*}"; done; echo "$(<feed/user/log.ndjson)"'
	[bash mapfile]='mapfile -t lines <feed/user/log.ndjson; echo ${#lines[@]}; printf "%.70s\n" "${lines[@]}"
		mapfile -n 3 -s 5 some <feed/order/log.ndjson; printf %s "${some[@]}"; IFS= read -rN 70001 text <feed/item/log.ndjson; echo "${#text}"'
	[bash two readers]='exec 3<feed/user/log.ndjson; IFS= read -ru 3 one; echo "${one:0:40}"; (IFS= read -r two; echo "${two:0:40}") <&3
		head -n 2 <&3 | cut -c 1-40; sed -n 1p <&3 | cut -c 1-40; cat <&3
		{ head -n 3; echo ---; IFS= read -r line; echo "$line"; tail -n 2; } <feed/order/log.ndjson
		while IFS= read -ru 4 a; do IFS= read -ru 4 b || b=; echo "${a:0:40} ${b:0:40}"; done 4<feed/order/log.ndjson'
	[python mmap]='python3 -c "
import hashlib, mmap, sys
for path in sys.argv[1:]:
    with open(path, \"rb\") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        text = f.read()
        assert m[:] == text and m.rfind(b\"\\n\") == text.rfind(b\"\\n\"), path
        m.madvise(mmap.MADV_WILLNEED)
        print(path, len(m), hashlib.md5(m).hexdigest(), m[len(m) // 2:][:20])
" feed/[!b]*/*.json'
	[python sendfile, splice, copy_file_range, preadv]='python3 -c "
import hashlib, os, sys
def pieces(call, source, sink, size):
    while (n := call(source, sink, size)) > 0:
        yield n
for path in sys.argv[2:]:
    size = os.stat(path).st_size
    whole = open(path, \"rb\").read()
    print(path, size, hashlib.md5(whole).hexdigest())
    copies = [lambda a, b, n: os.sendfile(b, a, None, n), os.copy_file_range]
    for copy in copies:
        with open(path, \"rb\") as a, open(sys.argv[1] + \"/out\", \"wb+\", buffering=0) as b:
            try:
                sum(pieces(copy, a.fileno(), b.fileno(), 99991))
            except OSError as e:
                assert e.errno == 18, e # another file system
                continue
            assert open(b.name, \"rb\").read() == whole, (path, copy)
    with open(path, \"rb\") as a:
        r, w = os.pipe()
        got = b\"\"
        while (n := os.splice(a.fileno(), w, 40000)) > 0:
            got += os.read(r, n)
        assert got == whole, path
        halves = [bytearray(size // 2), bytearray(size)]
        n = os.preadv(a.fileno(), halves, 0)
        assert b\"\".join(halves)[:n] == whole[:n] and n > 0, path
        assert os.lseek(a.fileno(), -5, os.SEEK_END) == size - 5 and os.read(a.fileno(), 9) == whole[-5:]
" $T feed/[!b]*/*.json feed/[!b]*/log.ndjson data/user/*.json'
)

# ---- mounts with something to read, and copies ----

# Fills the empty log of MNT with the events of a SEED, and makes WORK/copy.SEED, a copy of feed/ and data/
# that is known to be what was written.
fill_and_copy() {
	config '{"snapshots":"none"}'
	"$BATS_TEST_DIRNAME/tree.py" "$1" "$WORK/lines" "$WORK/oracle"
	cat "$WORK/lines" >"$MNT/in/events"
	within 60 rsync -a "$MNT/feed" "$MNT/data" "$WORK/copy.$1"
	diff -r --no-dereference "$WORK/oracle" "$WORK/copy.$1"
	cmp <(event_times "$WORK/oracle") <(event_times "$WORK/copy.$1")
	rm -r "$WORK/oracle"
}

event_times() {
	(cd "$1" && find feed data -name '*.json' -printf '%p %s %T@\n' | sort)
}

# For a whole file of tests, one daemon.
tools_setup_file() {
	BATS_TEST_TMPDIR=$BATS_FILE_TMPDIR changefs_setup
	export WORK DAEMON_STDERR LC_ALL=C.UTF-8 TREES='feed/user feed/order data/user data/order'
	start_daemon
	fill_and_copy 1
	COPY=$WORK/copy.1
	export COPY
}

# ---- the comparison ----

# print_of TOOL DIRECTORY: what the tool's command prints there.
print_of() {
	local scratch=$WORK/scratch.$BASHPID
	rm -rf "$scratch"
	mkdir "$scratch"
	(cd "$2" && T=$scratch within 60 bash -euo pipefail -c "${tools[$1]}" </dev/null 2>&1) ||
		echo "$1 ended with $?"
	rm -rf "$scratch"
}

# same_on_both TOOL [MOUNT COPY]
same_on_both() {
	local mount=${2:-$MNT} copy=${3:-$COPY} out=$WORK/print.$BASHPID
	[ -f "$copy.prints/$1" ] || {
		mkdir -p "$copy.prints"
		print_of "$1" "$copy" >"$copy.prints/$1"
	}
	print_of "$1" "$mount" >"$out"
	if ! cmp "$copy.prints/$1" "$out" >&2 || [ ! -s "$out" ] || grep -a "^$1 ended with" "$out" >&2; then
		echo "$1, the copy (<) and the mount (>):" >&2
		diff -a "$copy.prints/$1" "$out" | cut -c 1-200 | head -n 20 >&2
		return 1
	fi
	rm "$out"
}

# every_tool COMMAND [MOUNT COPY]: the whole matrix, the command before each tool.
every_tool() {
	local tool failed=0
	for tool in "${!tools[@]}"; do
		"$1"
		same_on_both "$tool" "${@:2}" || failed=1
	done
	return "$failed"
}
