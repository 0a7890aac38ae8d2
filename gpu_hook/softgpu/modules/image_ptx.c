/* PTX text: the .entry directives with their .param lists, and the sizes of .global variables. The
 * reader skips text between braces. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "modules/images.h"

struct reader {
    const char *at, *end;
    const char *token; /* into the text */
    size_t length;     /* 0 at the end */
};

static void skip_space(struct reader *reader)
{
    while (reader->at < reader->end) {
        const char *at = reader->at, *found = NULL;
        size_t left = (size_t)(reader->end - at);
        if (isspace((unsigned char)*at)) {
            reader->at++;
        } else if (left > 1 && at[0] == '/' && at[1] == '/') {
            found = memchr(at, '\n', left);
            reader->at = found ? found + 1 : reader->end;
        } else if (left > 1 && at[0] == '/' && at[1] == '*') {
            found = memmem(at + 2, left - 2, "*/", 2);
            reader->at = found ? found + 2 : reader->end;
        } else {
            return;
        }
    }
}

static int is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

/* A word (directives keep their dot), a quoted string, or one character. */
static int next(struct reader *reader)
{
    skip_space(reader);
    const char *at = reader->at;
    if (at < reader->end && *at == '"') {
        at++;
        while (at < reader->end && *at != '"')
            at++;
        at += at < reader->end;
    } else if (at < reader->end && is_word(*at)) {
        for (at++; at < reader->end && is_word(*at) && *at != '.'; at++)
            continue;
    } else if (at < reader->end) {
        at++;
    }
    reader->token = reader->at;
    reader->length = (size_t)(at - reader->at);
    reader->at = at;
    return reader->length != 0;
}

static int is(const struct reader *reader, const char *text)
{
    return strlen(text) == reader->length && memcmp(reader->token, text, reader->length) == 0;
}

/* Bytes of a type such as .u32, .b64, .f16x2, .pred; 0 for an unknown type. */
static uint32_t type_bytes(const struct reader *reader)
{
    if (reader->length < 3 || reader->token[0] != '.' || !strchr("busf", reader->token[1]) ||
        !isdigit((unsigned char)reader->token[2]))
        return 0;
    char *rest;
    unsigned long bits = strtoul(reader->token + 2, &rest, 10);
    unsigned long lanes = *rest == 'x' ? strtoul(rest + 1, NULL, 10) : 1;
    return (uint32_t)(bits * lanes / 8);
}

struct declaration {
    uint32_t bytes, alignment;
    uint64_t count; /* of an array */
    const char *name;
    size_t length;
};

/* After .param or .global, up to one of `stops`. The last plain word is the name. */
static int read_declaration(struct reader *reader, const char *stops, struct declaration *out)
{
    *out = (struct declaration){.count = 1};
    for (;;) {
        if (!next(reader))
            return -1;
        if (reader->length == 1 && strchr(stops, *reader->token))
            break;
        if (is(reader, ".align")) {
            next(reader);
            uint32_t alignment = (uint32_t)strtoul(reader->token, NULL, 10);
            if (out->bytes == 0) /* after the type it speaks of what a pointer points to */
                out->alignment = alignment;
        } else if (type_bytes(reader)) {
            out->bytes = type_bytes(reader);
        } else if (is(reader, "[")) {
            next(reader);
            out->count *= strtoull(reader->token, NULL, 0);
        } else if (*reader->token != '.' && is_word(*reader->token) && !isdigit((unsigned char)*reader->token)) {
            out->name = reader->token;
            out->length = reader->length;
        }
    }
    if (out->alignment == 0)
        out->alignment = out->bytes;
    return out->name && out->bytes && out->alignment ? 0 : -1;
}

static int read_entry(struct reader *reader, struct image *image)
{
    if (!next(reader) || !is_word(*reader->token))
        return -1;
    struct entry *entry = image_add_entry(image, reader->token, reader->length);
    if (entry == NULL)
        return -1;
    struct reader before = *reader;
    if (!next(reader) || !is(reader, "(")) {
        *reader = before; /* no parameters */
        return 0;
    }
    uint64_t offset = 0;
    while (next(reader) && !is(reader, ")")) {
        struct declaration parameter;
        if (!is(reader, ".param"))
            continue;
        if (read_declaration(reader, ",)", &parameter) != 0 || parameter.count > IMAGE_PARAMETER_BYTES_MAX)
            return -1;
        uint64_t bytes = parameter.bytes * parameter.count;
        offset = (offset + parameter.alignment - 1) / parameter.alignment * parameter.alignment;
        if (offset + bytes > IMAGE_PARAMETER_BYTES_MAX ||
            image_add_parameter(entry, (uint32_t)offset, (uint32_t)bytes) != 0)
            return -1;
        offset += bytes;
        if (is(reader, ")"))
            break;
    }
    return 0;
}

static int skip_body(struct reader *reader)
{
    for (int depth = 1; depth;) {
        if (!next(reader))
            return -1;
        depth += is(reader, "{") - is(reader, "}");
    }
    return 0;
}

int image_read_ptx(const char *text, size_t length, struct image *image)
{
    struct reader reader = {.at = text, .end = text + strnlen(text, length)};
    int has_version = 0;
    while (next(&reader)) {
        struct declaration global;
        if (is(&reader, ".version"))
            has_version = 1;
        else if (is(&reader, ".extern")) /* defined by another module */
            while (!is(&reader, ";") && next(&reader))
                continue;
        else if (is(&reader, ".entry") && read_entry(&reader, image) != 0)
            return -1;
        else if (is(&reader, "{") && skip_body(&reader) != 0)
            return -1;
        else if (is(&reader, ".global") && read_declaration(&reader, ";={", &global) == 0) {
            if (image_add_global(image, global.name, global.length, global.bytes * global.count) != 0)
                return -1;
            if (is(&reader, "{") && skip_body(&reader) != 0)
                return -1;
        }
    }
    return has_version ? 0 : -1;
}
