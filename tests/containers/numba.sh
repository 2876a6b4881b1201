#!/bin/sh
# Copies an interpreter with numba-cuda, and the libraries that both need, into the folder ROOT: the files of a container image. PYTHON is the
# interpreter of a virtual environment. Everything comes from this machine, so no registry is needed.
set -eu

base=$("$PYTHON" -c 'import sys; print(sys.base_prefix)')
version=$("$PYTHON" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
site=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

mkdir -p "$ROOT/usr/local/bin" "$ROOT/usr/local/lib" "$ROOT/lib64" "$ROOT/tmp" "$ROOT/etc"
cp -L "$base/bin/$version" "$ROOT/usr/local/bin/python3"
tar -C "$base/lib" --exclude site-packages --exclude dist-packages --exclude test -cf - "$version" | tar -C "$ROOT/usr/local/lib" -xf -
mkdir -p "$ROOT/usr/local/lib/$version/site-packages"
cp -R "$site/." "$ROOT/usr/local/lib/$version/site-packages/"
cp -L /lib64/ld-linux-x86-64.so.2 "$ROOT/lib64/"
# Libraries of the system lie where the loader looks for them.
mkdir -p "$ROOT/lib/x86_64-linux-gnu"
chmod 1777 "$ROOT/tmp"
find "$ROOT/usr/local" \( -name '*.so' -o -name '*.so.*' \) -print0 |
    xargs -0 ldd "$base/bin/$version" 2>/dev/null | sed -n 's/^.* => \(\/[^ ]*\) .*$/\1/p' | sort -u |
    while read -r library; do
        case $library in
            "$ROOT"/*) ;;
            *) cp -L "$library" "$ROOT/lib/x86_64-linux-gnu/" ;;
        esac
    done
