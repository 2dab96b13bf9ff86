# Previews Pulumi.$STACK.yaml of the current folder with the checkout that this action belongs to.
set -euo pipefail
checkout=$(cd "$GITHUB_ACTION_PATH/../../.." && pwd)
case $STACK in
"" | *[!A-Za-z0-9._-]*) echo "::error::stack: must be the NAME of a Pulumi.NAME.yaml (got '$STACK')" && exit 1 ;;
esac
if [ ! -f "Pulumi.$STACK.yaml" ]; then
    echo "::error::Pulumi.$STACK.yaml is not in $PWD; check the repository out before this action, or change \`stack\`"
    exit 1
fi
if [ "$checkout" != "$PWD" ]; then
    cp "Pulumi.$STACK.yaml" "$checkout/"
    BEFORE=${BEFORE:+$PWD/$BEFORE}
fi
log=$(mktemp)
picture=$checkout/build/preview/$STACK.html
rm -f "$picture"
code=0
make --no-print-directory -C "$checkout" preview STACK="$STACK" BEFORE="$BEFORE" >"$log" 2>&1 || code=$?
cat "$log"
end=END-OF-REPORT-$RANDOM$RANDOM
{
    printf '### Preview of %s\n\n```text\n' "$STACK"
    tail -c 100000 "$log"
    printf '```\n'
} >>"$GITHUB_STEP_SUMMARY"
{
    printf 'report<<%s\n' "$end"
    tail -c 50000 "$log"
    printf '%s\n' "$end"
    if [ -f "$picture" ]; then printf 'picture=%s\n' "$picture"; fi
} >>"$GITHUB_OUTPUT"
exit "$code"
