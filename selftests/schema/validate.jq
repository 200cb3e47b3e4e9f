# SPDX-License-Identifier: GPL-2.0
#
# Prints what of the input is not as the JSON schema $schema[0] says. Of JSON Schema it knows
# type, enum, minimum, items, properties, required, additionalProperties and $ref to
# #/definitions, which is all that the schemas here use; anything else is an error.

def kind: type as $t | if $t == "number" and floor == . then "integer" else $t end;

def check($s; $path):
	. as $v |
	if $s["$ref"] then
		check($schema[0].definitions[$s["$ref"] | ltrimstr("#/definitions/")] //
		      error("no " + $s["$ref"]); $path)
	else
		(($s | keys) - ["type", "enum", "minimum", "items", "properties", "required",
			"additionalProperties", "definitions", "title", "$schema"] |
		 if . != [] then error("unknown keywords " + tostring) else empty end),
		(if $s.type and ([$s.type] | flatten | index($v | kind) == null) then
			"\($path): is \($v | kind), not \($s.type)" else empty end),
		(if $s.enum and ($s.enum | index([$v]) == null) then
			"\($path): \($v) is none of \($s.enum)" else empty end),
		(if $s.minimum and ($v | type) == "number" and $v < $s.minimum then
			"\($path): \($v) is less than \($s.minimum)" else empty end),
		(if $s.items and ($v | type) == "array" then
			$v | to_entries[] | . as $e | $e.value | check($s.items; "\($path)[\($e.key)]")
		 else empty end),
		(if ($v | type) == "object" then
			(($s.required // [])[] | select(. as $k | $v | has($k) | not) |
			 "\($path): \(.) is missing"),
			($v | to_entries[] | . as $e | $s.properties[$e.key] as $p |
			 if $p then $e.value | check($p; "\($path).\($e.key)")
			 elif $s.additionalProperties == false then "\($path).\($e.key): not in the schema"
			 else empty end)
		 else empty end)
	end;

[check($schema[0]; "$")] | if . == [] then empty else .[] end
