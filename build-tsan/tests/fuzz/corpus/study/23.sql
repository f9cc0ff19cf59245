UPDATE version_info SET library_version = 'x';
