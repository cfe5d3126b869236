# shellcheck shell=bash
# What the scripts in dev/ share: where things live, how to speak, and how to get a missing tool.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { echo "· $*" >&2; }
die() {
	echo "✗ $*" >&2
	exit 1
}

# What is costly to make and the same for every clone is kept per user; a clone
# keeps it itself where the home folder cannot be written, as in some CI jobs.
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/odometer
if ! mkdir -p "$cache" 2>/dev/null || [[ ! -w $cache ]]; then
	cache=$repo/.dev/cache
	mkdir -p "$cache"
fi
tools=$cache/tools
PATH=$PATH:$tools/usr/bin
export PATH

root() { [[ $(id -u) == 0 ]]; }

# with_lock NAME COMMAND…: two clones that set themselves up at once do it one after the other.
with_lock() {
	local name=$1 lock
	shift
	exec {lock}>"$cache/$name.lock"
	flock -n "$lock" || {
		say "waiting for another set-up of $name to finish"
		flock "$lock"
	}
	"$@" {lock}>&-
	exec {lock}>&-
}

# install PACKAGE…: from the system's own archive. Without root the packages, and what they
# need that is not installed, are only unpacked, into the cache.
install() {
	command -v apt-get >/dev/null ||
		die "$* missing, and only Debian and Ubuntu are set up by themselves: install it and try again."
	if root; then
		say "installing $*"
		{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } \
			>"$cache/apt.log" 2>&1 || die "apt-get could not install $*; see $cache/apt.log"
		return
	fi
	say "unpacking $* for this user (no root needed)"
	local state=$cache/apt deb
	rm -rf "$state/archives"
	mkdir -p "$state/lists/partial" "$state/archives/partial" "$tools"
	local private=(-o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state" -o "Dir::Cache::archives=$state/archives"
		-o Debug::NoLocking=1 -o APT::Sandbox::User=)
	{ apt-get "${private[@]}" update &&
		apt-get "${private[@]}" install -y --download-only --no-install-recommends "$@"; } \
		>"$cache/apt.log" 2>&1 || die "apt-get could not download $*; see $cache/apt.log"
	for deb in "$state"/archives/*.deb; do dpkg-deb -x "$deb" "$tools"; done
}

# need COMMAND PACKAGE…: COMMAND can be run afterwards.
need() {
	local command=$1
	shift
	command -v "$command" >/dev/null || with_lock tools install "$@"
	command -v "$command" >/dev/null || die "$command is still missing after installing $*."
}

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_port NAME PORT VARIABLE: a taken port is a message, never a kill.
free_port() {
	! listening "$2" || die "Port $2, for $1, is taken by another program${3:+. Stop it, or choose another port: $3=12345 make up}."
}

# alive PIDFILE: the process named there runs. A zombie does not.
alive() {
	local pid state
	pid=$(cat "$1" 2>/dev/null) && [[ -n $pid ]] || return 1
	state=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) || return 1
	[[ -n $state && $state != Z* ]]
}

# eventually SECONDS COMMAND…: until it succeeds.
eventually() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < deadline)) || return 1
		sleep 0.1
	done
}
