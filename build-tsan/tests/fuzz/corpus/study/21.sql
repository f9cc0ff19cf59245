UPDATE version_info SET schema_version = 13;
